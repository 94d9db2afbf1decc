package kernels

const (
	// From copyUncached bytes on, Go's copy writes past the caches on amd64. Shorter copies go through them.
	copyUncached = 1 << 20
	copyPiece    = copyUncached / 2

	// copyCached is the largest copy for which going through the caches pays off.
	copyCached = 4 << 20
)

// Copy copies len(dst) bytes from src, which is at least as long. They must not overlap, unless they are the same
// memory.
//
// It uses Go's copy, which is as fast as our own vector loops (tried: AVX-512, non-temporal AVX-512, REP MOVSB), except
// for large data that still fits the last-level cache. It copies such data in pieces, which is 50 % faster, and leaves
// dst in the cache for its next reader.
func Copy(dst, src []byte) {
	src = src[:len(dst)]
	if len(dst) < copyUncached || len(dst) > copyCached {
		copy(dst, src)
		return
	}
	for len(dst) > 0 {
		n := copy(dst[:min(copyPiece, len(dst))], src)
		dst, src = dst[n:], src[n:]
	}
}

// CopyPiece is Copy for a piece of a copy of whole bytes. If the whole doesn't fit the last-level cache, the piece is
// written past the caches: it would be evicted before the whole is copied, and this way the data for the next pieces
// stays there. "carillon bench --sizes 64M" shows the gain: up to a fifth of an all-reduce.
func CopyPiece(dst, src []byte, whole int) {
	src = src[:len(dst)]
	if whole <= copyCached {
		Copy(dst, src)
		return
	}
	from, to := pastCaches(dst, src)
	copy(dst[:from], src)
	copy(dst[to:], src[to:])
}
