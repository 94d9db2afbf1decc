package host

import "math"

// endless is more than a rank that is gone can do: it would have to take something.
const endless = math.MaxInt

// suffices says whether what a lost peer has sent, all of which has come, is all of the n bytes that are still wanted
// of it. To see how much there is, it takes what lies there off the connection, at most n bytes: a window shows no more
// than what is contiguous.
func (e *Engine) suffices(peer, n int) bool {
	if n == endless {
		return false
	}
	l := e.all[peer]
	if len(l.kept) == 0 {
		if window, _ := l.conn.Peek(); len(window) >= n {
			return true
		}
	}
	_ = l.keep(n) // what is missing says the same
	return len(l.kept) >= n
}

// keep moves what the connection shows to kept, until that is n bytes. The error is the connection's.
func (l *link) keep(n int) error {
	for len(l.kept) < n {
		window, err := l.conn.Peek()
		if len(window) == 0 {
			return err
		}
		window = window[:min(len(window), n-len(l.kept))]
		l.kept = append(l.kept, window...)
		l.conn.Release(len(window))
	}
	return nil
}

// peek and release are the connection's Peek and Release, with what was kept in front.

func (l *link) peek() ([]byte, error) {
	if len(l.kept) == 0 {
		return l.conn.Peek()
	}
	// Its last bytes may be a part of an element.
	if err := l.keep(wordSize); err != nil {
		return nil, err
	}
	return l.kept, nil
}

func (l *link) release(n int) {
	if len(l.kept) == 0 {
		l.conn.Release(n)
		return
	}
	if l.kept = l.kept[n:]; len(l.kept) == 0 {
		l.kept = nil
	}
}
