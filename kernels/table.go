package kernels

// table has the result of a reduction for each pair of 8-bit numbers, with the first operand's bits above the second's.
// Real data has numbers of few magnitudes, so the part of the table that they use stays in the first-level cache. A
// table is made on first use and takes 64 KiB.
type table [1 << 16]uint8

// lookUp sets dst[i] to t's entry for a[i] and b[i].
func lookUp(dst, a, b []byte, t *table) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = t[uint(a[i])<<8|uint(b[i])]
	}
}

// lookUpEach sets dst[i] to f(src[i]). For many elements, it calls f once for each of the 256 numbers.
func lookUpEach[T E4M3 | E5M2 | int8 | uint8](dst, src []byte, f func(T) T) {
	d, s := view[T](dst), view[T](src[:len(dst)])
	if len(d) < 512 {
		for i := range d {
			d[i] = f(s[i])
		}
		return
	}
	var results [256]T
	for i := range results {
		results[i] = f(T(i))
	}
	s = s[:len(d)]
	for i := range d {
		d[i] = results[uint8(s[i])]
	}
}
