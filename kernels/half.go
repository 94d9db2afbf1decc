package kernels

import "math"

const (
	sign32 = 1 << 31
	inf32  = 0x7f800000
)

// Float32 returns h, exactly. A NaN keeps its sign and payload and becomes quiet.
func (h F16) Float32() float32 {
	// With the fields at their float32 positions, only the difference of the exponents' biases, 112, is missing. A
	// multiplication adds it, and also normalizes subnormal numbers.
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

// ToF16 rounds f to the nearest F16, ties to even. From 65520 on in magnitude the result is infinite. A NaN keeps
// its sign and the upper part of its payload and becomes quiet.
func ToF16(f float32) F16 {
	bits := math.Float32bits(f)
	sign := bits >> 16 & 0x8000
	if f != f {
		return F16(sign | 0x7e00 | bits>>13&0x1ff)
	}
	// unit is 2^13 times f's power of two (which counts as at least 2^-14, for subnormal numbers). Its last bit is
	// where F16 has its own, so the addition rounds. Values beyond the range are treated as 2^16, whose bit pattern is
	// the infinity's.
	abs := min(bits&^sign32, 0x47800000)
	unit := max(abs&inf32, 0x38800000) + 13<<23
	rounded := math.Float32bits(math.Float32frombits(abs)+math.Float32frombits(unit)) - unit
	return F16(sign + rounded + (unit-0x3f000000)>>13)
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
