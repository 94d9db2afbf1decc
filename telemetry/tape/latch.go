package tape

// latch holds a value that changes as a whole: wherever its writer stops, one of the two copies is whole. Readers never
// wait.
type latch[T any] [2]struct {
	marker uint64
	value  T // it has no padding
}

// publish makes value the current copy. For operations, CommWriter.show does the same.
func (l *latch[T]) publish(value T) {
	version, _, _ := l.current()
	to := &l[(version+1)&1]
	to.value = value
	storeRelease(&to.marker, marker(uint64(version+1), 0, wordsOf(&value)))
}

// current returns the current copy and its version, zero if nothing was published; ok is false if the check doesn't
// match.
func (l *latch[T]) current() (version uint32, value *T, ok bool) {
	now := &l[0]
	if other := &l[1]; int32(uint32(other.marker>>32)-uint32(now.marker>>32)) > 0 {
		now = other
	}
	version = uint32(now.marker >> 32)
	return version, &now.value, now.marker == marker(uint64(version), 0, wordsOf(&now.value))
}
