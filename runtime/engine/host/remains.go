package host

import "math"

// endless is more than a lost rank can deliver: the operation needs it to receive something.
const endless = math.MaxInt

// suffices reports whether a lost peer has sent all of the n bytes that are still wanted from it. All that it sent has
// arrived. As a window only shows what is contiguous, suffices takes up to n bytes off the connection to count them.
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
	_ = l.keep(n) // kept tells as much as the error
	return len(l.kept) >= n
}

// keep moves data from the connection to kept until kept has n bytes. The error is the connection's.
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

// peek and release are the connection's Peek and Release, with the kept bytes in front.

func (l *link) peek() ([]byte, error) {
	if len(l.kept) == 0 {
		return l.conn.Peek()
	}
	// The last kept bytes may be a part of an element.
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
