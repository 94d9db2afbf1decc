package transport

import "sync/atomic"

// losses remembers, for each peer of a rank, the first cause for which it was lost, and which peer was lost first.
// When first is not zero, the cause of peer first-1 is set.
type losses struct {
	first  atomic.Int32
	causes []atomic.Pointer[error]
}

func newLosses(size int) losses { return losses{causes: make([]atomic.Pointer[error], size)} }

// PeerLost says that the connection to peer is of no use any more, and why. The first cause per peer is kept. It rings.
func (w *Waiter) PeerLost(peer int, err error) {
	if w.losses.causes[peer].CompareAndSwap(nil, &err) {
		w.losses.first.CompareAndSwap(0, int32(peer)+1)
	}
	w.Ring()
}

// Lost returns why peer was lost, or nil.
func (w *Waiter) Lost(peer int) error {
	if w.losses.first.Load() == 0 {
		return nil
	}
	if err := w.losses.causes[peer].Load(); err != nil {
		return *err
	}
	return nil
}

// FirstLost returns the peer that was lost first, and why; -1 and nil when none was.
func (w *Waiter) FirstLost() (peer int, err error) {
	first := w.losses.first.Load()
	if first == 0 {
		return -1, nil
	}
	return int(first) - 1, w.Lost(int(first) - 1)
}
