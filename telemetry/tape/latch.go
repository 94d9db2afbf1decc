package tape

import "sync/atomic"

// A latch is a sequence lock that keeps two copies of what it guards, and so never makes a reader wait: the writer fills in the copy
// that is not current and then publishes it with one store of the control word. A writer that stops half-way, be it preempted or
// killed, leaves the other copy whole. The control word is the version in the upper half, whose lowest bit names the
// current copy, and the check of that copy in the lower.
//
// There is one writer at a time: who has the communicator's turn, or holds the lock of the part.

// publish publishes the words w; copies are the two of them. CommWriter.publishOp is the same for a slot's operation, unrolled.
func publish(control *uint64, copies, w []uint64) {
	version := uint32(*control>>32) + 1
	copy(copies[int(version&1)*len(w):], w)
	atomic.StoreUint64(control, latchWord(version, w))
}

func latchWord(version uint32, w []uint64) uint64 {
	return uint64(version)<<32 | uint64(fold(uint64(version), w...))
}

// latched returns the current copy, of n words; ok is false if it isn't whole. A latch that was never written is whole and all zero.
func latched(control uint64, copies []uint64, n int) (w []uint64, ok bool) {
	version := uint32(control >> 32)
	w = copies[int(version&1)*n:][:n]
	return w, control == 0 || control == latchWord(version, w)
}
