package kernels

const (
	// From copyUncached on, Go's copy writes past the caches on amd64. Less than that at a time goes through them.
	copyUncached = 1 << 20
	copyPiece    = copyUncached / 2

	// copyCached is up to where going through the caches pays.
	copyCached = 4 << 20
)

// Copy copies len(dst) bytes from src, which is at least as long. They must not overlap, unless they are the same.
//
// It is Go's copy, which is as fast as vector loops of our own (tried: AVX-512, non-temporal AVX-512, REP MOVSB), but
// for what is large and yet fits the last cache. That it copies in pieces, half as fast again, and whoever reads
// dst next finds it in the cache.
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
