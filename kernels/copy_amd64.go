package kernels

import "unsafe"

// copyPast copies n bytes with stores that write past the caches.
//
//go:noescape
func copyPast(dst, src *byte, n int)

// pastCaches copies dst past the caches, except for up to 31 bytes at its beginning and 127 at its end, and returns the
// range that it copied: an empty one if dst is short, or this processor can't.
func pastCaches(dst, src []byte) (from, to int) {
	if activeSIMD() < AVX2 || len(dst) < 256 {
		return 0, 0
	}
	from = int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) & 31)
	for to = from; len(dst)-to >= 128; {
		n := min(len(dst)-to, block) &^ 127
		copyPast(&dst[to], &src[to], n)
		to += n
	}
	return from, to
}
