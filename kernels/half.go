package kernels

import "math"

const (
	sign32 = 1 << 31
	inf32  = 0x7f800000
)

// Float32 returns h, exactly. A NaN keeps its sign and payload and becomes quiet.
func (h F16) Float32() float32 {
	// With the fields where float32 has them, what is missing is the difference of the exponents' biases, 112. A
	// multiplication adds it, and makes subnormal numbers right as well.
	f := math.Float32frombits(uint32(h&0x7fff)<<13) * 0x1p112
	bits := math.Float32bits(f) | uint32(h&0x8000)<<16
	if h&0x7c00 == 0x7c00 {
		bits |= inf32
		if h&0x03ff != 0 {
			bits |= quiet32
		}
	}
	return math.Float32frombits(bits)
}

// ToF16 rounds f to the nearest F16, ties to even. From 65520 on in magnitude the result is infinite.
func ToF16(f float32) F16 {
	bits := math.Float32bits(f)
	abs := bits &^ sign32
	if abs-0x38800000 < 0x47800000-0x38800000 { // 2^-14 ≤ |f| < 2^16: normal numbers
		return F16(bits>>16&0x8000 | (abs-112<<23+0xfff+abs>>13&1)>>13)
	}
	return roundF16(bits)
}

//go:noinline
func roundF16(bits uint32) F16 {
	abs, sign := bits&^sign32, F16(bits>>16&0x8000)
	switch {
	case abs > inf32:
		return sign | 0x7e00 | F16(abs>>13&0x1ff)
	case abs >= 0x47800000:
		return sign | 0x7c00
	default:
		// A float32 just above 0.5 counts in units of 2^-24, as a subnormal F16 does: the addition rounds.
		return sign | F16(math.Float32bits(math.Float32frombits(abs)+0.5)-math.Float32bits(0.5))
	}
}

// Float32 returns h, exactly.
func (h BF16) Float32() float32 { return math.Float32frombits(uint32(h) << 16) }

// ToBF16 rounds f to the nearest BF16, ties to even. A NaN keeps its sign and the upper part of its payload and
// becomes quiet.
func ToBF16(f float32) BF16 {
	bits := math.Float32bits(f)
	if f != f {
		return BF16(bits>>16 | 0x40)
	}
	return BF16((bits + 0x7fff + bits>>16&1) >> 16)
}
