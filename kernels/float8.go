package kernels

import "math"

// Float32 returns e, exactly. The two NaNs (0x7f and 0xff) become quiet float32 NaNs of the same sign.
func (e E4M3) Float32() float32 {
	bits := uint32(e&0x80) << 24
	if e&0x7f == 0x7f {
		return math.Float32frombits(bits | inf32 | quiet32)
	}
	// As F16.Float32: 120 is the difference of the exponents' biases.
	return math.Float32frombits(bits | math.Float32bits(math.Float32frombits(uint32(e&0x7f)<<20)*0x1p120))
}

// ToE4M3 rounds f to the nearest E4M3, ties to even. Values that are too large, including infinities, become ±448, the
// largest E4M3.
func ToE4M3(f float32) E4M3 {
	bits := math.Float32bits(f)
	abs := bits &^ sign32
	if abs-0x3c800000 < 0x43e80000-0x3c800000 { // 2^-6 ≤ |f| < 464: normal numbers, and values that round to them
		return E4M3(bits>>24&0x80 | (abs-120<<23+0x7ffff+abs>>20&1)>>20)
	}
	return roundE4M3(bits)
}

//go:noinline
func roundE4M3(bits uint32) E4M3 {
	abs, sign := bits&^sign32, E4M3(bits>>24&0x80)
	switch {
	case abs > inf32:
		return sign | 0x7f
	case abs >= 0x43e80000:
		return sign | 0x7e
	default:
		// Just above 2^14, a float32 counts in units of 2^-9, as a subnormal E4M3 does: the addition rounds.
		return sign | E4M3(math.Float32bits(math.Float32frombits(abs)+0x1p14)-math.Float32bits(0x1p14))
	}
}

// Float32 returns e, exactly. E5M2 is the upper half of an F16.
func (e E5M2) Float32() float32 { return (F16(e) << 8).Float32() }

// ToE5M2 rounds f to the nearest E5M2, ties to even. From 61440 on in magnitude the result is infinite.
func ToE5M2(f float32) E5M2 {
	bits := math.Float32bits(f)
	abs := bits &^ sign32
	if abs-0x38800000 < 0x47800000-0x38800000 { // 2^-14 ≤ |f| < 2^16: normal numbers
		return E5M2(bits>>24&0x80 | (abs-112<<23+0xfffff+abs>>21&1)>>21)
	}
	return roundE5M2(bits)
}

//go:noinline
func roundE5M2(bits uint32) E5M2 {
	abs, sign := bits&^sign32, E5M2(bits>>24&0x80)
	switch {
	case abs > inf32:
		return sign | 0x7e | E5M2(abs>>21&1)
	case abs >= 0x47800000:
		return sign | 0x7c
	default:
		// Just above 2^7, a float32 counts in units of 2^-16, as a subnormal E5M2 does: the addition rounds.
		return sign | E5M2(math.Float32bits(math.Float32frombits(abs)+0x1p7)-math.Float32bits(0x1p7))
	}
}
