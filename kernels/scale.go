package kernels

import (
	"math"
	"unsafe"
)

// Divide divides every element of buf by n, in place: the last step of Avg, with n the number of ranks. Integers
// truncate towards zero. Float64 is divided in float64, all other floats in float32, rounding once on the way back. If
// n ≤ 1 or dt is not valid, buf stays unchanged.
func Divide(buf []byte, dt DataType, n int) { divideWith(activeSIMD(), buf, dt, n) }

// Scale sets dst[i] to src[i] times factor: the first step of PreMulSum. src is at least as long as dst, and may be
// exactly dst.
//
// Float64 is multiplied in float64. For all other floats, the factor is rounded to float32, multiplied in float32, and
// the product rounded once on the way back. For integers, the factor is first converted to the integer type: truncated
// towards zero, values out of range become the nearest end of the range and a NaN becomes 0. The product wraps around.
func Scale(dst, src []byte, dt DataType, factor float64) {
	scaleWith(activeSIMD(), dst, src, dt, factor)
}

// scaling says what is done to an element.
type scaling uint8

const (
	multiply scaling = iota
	divide
)

func divideWith(level SIMD, buf []byte, dt DataType, n int) {
	if n <= 1 {
		return
	}
	buf = buf[scaleVectors(level, divide, buf, buf, dt, float64(n)):]
	switch dt {
	case Int8:
		lookUpEach(buf, buf, func(x int8) int8 { return quotient(x, n) })
	case Uint8:
		lookUpEach(buf, buf, func(x uint8) uint8 { return quotient(x, n) })
	case Int32:
		apply(view[int32](buf), view[int32](buf), func(x int32) int32 { return quotient(x, n) })
	case Uint32:
		apply(view[uint32](buf), view[uint32](buf), func(x uint32) uint32 { return quotient(x, n) })
	case Int64:
		apply(view[int64](buf), view[int64](buf), func(x int64) int64 { return quotient(x, n) })
	case Uint64:
		apply(view[uint64](buf), view[uint64](buf), func(x uint64) uint64 { return quotient(x, n) })
	case Float64:
		apply(view[float64](buf), view[float64](buf), func(x float64) float64 { return div(x, float64(n)) })
	case Float32:
		apply(view[float32](buf), view[float32](buf), func(x float32) float32 { return div(x, float32(n)) })
	default:
		applyWide(buf, buf, dt, func(x float32) float32 { return div(x, float32(n)) })
	}
}

// quotient widens, because n, the number of ranks, need not fit the element type.
func quotient[T integer](x T, n int) T {
	if x < 0 {
		return T(int64(x) / int64(n))
	}
	return T(uint64(x) / uint64(n))
}

func scaleWith(level SIMD, dst, src []byte, dt DataType, factor float64) {
	src = src[:len(dst)]
	done := scaleVectors(level, multiply, dst, src, dt, factor)
	dst, src = dst[done:], src[done:]
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
		apply(view[float64](dst), view[float64](src), func(x float64) float64 { return mul(x, factor) })
	case Float32:
		apply(view[float32](dst), view[float32](src), func(x float32) float32 { return mul(x, float32(factor)) })
	default:
		applyWide(dst, src, dt, func(x float32) float32 { return mul(x, float32(factor)) })
	}
}

func scaleInteger[T integer](dst, src []byte, factor float64) {
	f := integerFactor[T](factor)
	d, s := view[T](dst), view[T](src)
	apply(d, s, func(x T) T { return x * f })
}

// apply sets d[i] to f(s[i]). It is small enough to be inlined, together with f, which leaves a loop without calls and
// bounds checks.
func apply[T Element](d, s []T, f func(x T) T) {
	s = s[:len(d)]
	for i := range d {
		d[i] = f(s[i])
	}
}

// applyWide is apply for the floats that are computed in float32.
func applyWide(dst, src []byte, dt DataType, f func(x float32) float32) {
	switch dt {
	case Float16:
		apply(view[F16](dst), view[F16](src), func(x F16) F16 { return ToF16(f(x.Float32())) })
	case BFloat16:
		apply(view[BF16](dst), view[BF16](src), func(x BF16) BF16 { return ToBF16(f(x.Float32())) })
	case Float8E4M3:
		lookUpEach(dst, src, func(x E4M3) E4M3 { return ToE4M3(f(x.Float32())) })
	case Float8E5M2:
		lookUpEach(dst, src, func(x E5M2) E5M2 { return ToE5M2(f(x.Float32())) })
	default: // computed in its own type
	}
}

// integerFactor converts a factor as described for Scale. In Go, conversions of values out of range depend on the
// processor.
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
