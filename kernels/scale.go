package kernels

import (
	"math"
	"unsafe"
)

// Divide divides every element of buf by n, in place: the last step of Avg, n being the number of ranks. Integers
// truncate towards zero. Floats are divided by n in float64 for Float64 and in float32 for all others, which
// round once on the way back. n ≤ 1 leaves buf as it is, as does a dt that is not valid.
func Divide(buf []byte, dt DataType, n int) { divideWith(ActiveSIMD(), buf, dt, n) }

// Scale sets dst[i] to src[i] times factor: the first step of PreMulSum. src is at least as long as dst, and may be
// exactly dst.
//
// Floats multiply in float64 for Float64; for all others the factor is rounded to float32, multiplied there, and the
// product rounded once on the way back. For integers the factor is first made an integer of the same type: truncated
// towards zero, values out of range become the nearest end of the range and a NaN becomes 0. The product wraps around.
func Scale(dst, src []byte, dt DataType, factor float64) {
	scaleWith(ActiveSIMD(), dst, src, dt, factor)
}

// scaling says what happens to an element.
type scaling uint8

const (
	multiply scaling = iota
	divide
)

func divideWith(level SIMD, buf []byte, dt DataType, n int) {
	if n <= 1 {
		return
	}
	switch dt {
	case Int8:
		lookUpEach(buf, buf, func(x int8) int8 { return int8(int(x) / n) })
	case Uint8:
		lookUpEach(buf, buf, func(x uint8) uint8 { return uint8(int(x) / n) })
	case Int32:
		divideSigned[int32](buf, n)
	case Uint32:
		divideUnsigned[uint32](buf, n)
	case Int64:
		divideSigned[int64](buf, n)
	case Uint64:
		divideUnsigned[uint64](buf, n)
	case Float64:
		done := scaleVectors(level, divide, buf, buf, dt, float64(n))
		scaleFloat64(buf[done:], buf[done:], divide, float64(n))
	case Float32, Float16, BFloat16, Float8E4M3, Float8E5M2:
		done := scaleVectors(level, divide, buf, buf, dt, float64(n))
		scaleFloat(buf[done:], buf[done:], dt, divide, float32(n))
	case numDataTypes:
	}
}

func scaleWith(level SIMD, dst, src []byte, dt DataType, factor float64) {
	src = src[:len(dst)]
	switch dt {
	case Int8:
		scaleInteger[int8](dst, src, factor)
	case Uint8:
		scaleInteger[uint8](dst, src, factor)
	case Int32:
		scaleInteger[int32](dst, src, factor)
	case Uint32:
		scaleInteger[uint32](dst, src, factor)
	case Int64:
		scaleInteger[int64](dst, src, factor)
	case Uint64:
		scaleInteger[uint64](dst, src, factor)
	case Float64:
		done := scaleVectors(level, multiply, dst, src, dt, factor)
		scaleFloat64(dst[done:], src[done:], multiply, factor)
	case Float32, Float16, BFloat16, Float8E4M3, Float8E5M2:
		done := scaleVectors(level, multiply, dst, src, dt, factor)
		scaleFloat(dst[done:], src[done:], dt, multiply, float32(factor))
	case numDataTypes:
	}
}

// divideSigned widens to int64 because n, a number of ranks, need not fit the element.
func divideSigned[T int32 | int64](buf []byte, n int) {
	d := view[T](buf)
	apply(d, d, func(x T) T { return T(int64(x) / int64(n)) })
}

func divideUnsigned[T uint32 | uint64](buf []byte, n int) {
	d := view[T](buf)
	apply(d, d, func(x T) T { return T(uint64(x) / uint64(n)) })
}

func scaleInteger[T integer](dst, src []byte, factor float64) {
	f := integerFactor[T](factor)
	apply(view[T](dst), view[T](src), func(x T) T { return x * f })
}

func scaleFloat64(dst, src []byte, how scaling, by float64) {
	d, s := view[float64](dst), view[float64](src)
	if how == divide {
		apply(d, s, func(x float64) float64 { return div64(x, by) })
	} else {
		apply(d, s, func(x float64) float64 { return mul64(x, by) })
	}
}

// scaleFloat scales all floats that are computed with in float32.
func scaleFloat(dst, src []byte, dt DataType, how scaling, by float32) {
	f := mul32
	if how == divide {
		f = div32
	}
	switch dt {
	case Float16:
		apply(view[F16](dst), view[F16](src), func(x F16) F16 { return ToF16(f(x.Float32(), by)) })
	case BFloat16:
		apply(view[BF16](dst), view[BF16](src), func(x BF16) BF16 { return ToBF16(f(x.Float32(), by)) })
	case Float8E4M3:
		lookUpEach(dst, src, func(x E4M3) E4M3 { return ToE4M3(f(x.Float32(), by)) })
	case Float8E5M2:
		lookUpEach(dst, src, func(x E5M2) E5M2 { return ToE5M2(f(x.Float32(), by)) })
	default:
		d, s := view[float32](dst), view[float32](src)
		if how == divide {
			apply(d, s, func(x float32) float32 { return div32(x, by) })
		} else {
			apply(d, s, func(x float32) float32 { return mul32(x, by) })
		}
	}
}

// integerFactor converts a factor as Scale says. Go leaves conversions of what is out of range to the processor.
func integerFactor[T integer](factor float64) T {
	bits := int(unsafe.Sizeof(T(0))) * 8
	var lowest T
	limit := math.Ldexp(1, bits) // the first value above the range
	if ^lowest < 0 {
		limit /= 2
		lowest = T(1) << (bits - 1)
	}
	switch {
	case factor != factor:
		return 0
	case factor >= limit:
		return ^lowest
	case factor <= float64(lowest):
		return lowest
	default:
		return T(factor)
	}
}
