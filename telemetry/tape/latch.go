package tape

// A latch is what changes as a whole: two copies of the same words, each behind its marker. The copy with the later
// version is the current one. A writer, of which there is one at a time, fills in the other copy and stores its
// marker last: so it never makes a reader wait, and wherever it stops, be it preempted or killed, one copy is whole.

// publish makes words, with this version, the current copy of a latch. CommWriter.show does it for the operation.
func publish(latch []uint64, version uint32, words []uint64) {
	to := latch[int(version&1)*(len(words)+1):][:len(words)+1]
	copy(to[1:], words)
	storeRelease(&to[0], marker(uint64(version), 0, words))
}

// current is the version and the words of the current copy of a latch of n words; ok is false if their check does not
// fit. A latch that was never written is whole, and all zero.
func current(latch []uint64, n int) (version uint32, words []uint64, ok bool) {
	now := latch[:n+1]
	if other := latch[n+1:][:n+1]; int32(uint32(other[0]>>32)-uint32(now[0]>>32)) > 0 {
		now = other
	}
	version, words = uint32(now[0]>>32), now[1:]
	return version, words, now[0] == marker(uint64(version), 0, words)
}
