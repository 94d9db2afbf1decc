package kernels

import (
	"math"
	"unsafe"
)

// Divide divides every element of buf by n, in place: the last step of Avg, n being the number of ranks. Integers
// truncate towards zero. Floats are divided by n in float64 for Float64 and in float32 for all others, which
// round once on the way back. n ≤ 1 leaves buf as it is.
func Divide(buf []byte, dt DataType, n int) {
	if n <= 1 {
		return
	}
	switch dt {
	case Int8:
		divideSigned[int8](buf, n)
	case Uint8:
		divideUnsigned[uint8](buf, n)
	case Int32:
		divideSigned[int32](buf, n)
	case Uint32:
		divideUnsigned[uint32](buf, n)
	case Int64:
		divideSigned[int64](buf, n)
	case Uint64:
		divideUnsigned[uint64](buf, n)
	case Float16:
		d, by := view[F16](buf), float32(n)
		for i, x := range d {
			d[i] = ToF16(div32(x.Float32(), by))
		}
	case Float32:
		d, by := view[float32](buf), float32(n)
		apply(d, d, func(x float32) float32 { return div32(x, by) })
	case Float64:
		d, by := view[float64](buf), float64(n)
		apply(d, d, func(x float64) float64 { return div64(x, by) })
	case BFloat16:
		d, by := view[BF16](buf), float32(n)
		for i, x := range d {
			d[i] = ToBF16(div32(x.Float32(), by))
		}
	case Float8E4M3:
		by := float32(n)
		lookUpEach(buf, buf, func(x E4M3) E4M3 { return ToE4M3(div32(x.Float32(), by)) })
	case Float8E5M2:
		by := float32(n)
		lookUpEach(buf, buf, func(x E5M2) E5M2 { return ToE5M2(div32(x.Float32(), by)) })
	case numDataTypes:
	}
}

// divideSigned widens to int64 because n, a number of ranks, need not fit the element.
func divideSigned[T int8 | int32 | int64](buf []byte, n int) {
	d, by := view[T](buf), int64(n)
	apply(d, d, func(x T) T { return T(int64(x) / by) })
}

func divideUnsigned[T uint8 | uint32 | uint64](buf []byte, n int) {
	d, by := view[T](buf), uint64(n)
	apply(d, d, func(x T) T { return T(uint64(x) / by) })
}

// Scale sets dst[i] to src[i] times factor: the first step of PreMulSum. src is at least as long as dst, and may be
// exactly dst.
//
// Floats multiply in float64 for Float64; for all others the factor is rounded to float32, multiplied there, and
// the product rounded once on the way back. For integers the factor is first made an integer of the same type:
// truncated towards zero, values out of range become the nearest end of the range and a NaN becomes 0. The product
// wraps around.
func Scale(dst, src []byte, dt DataType, factor float64) {
	src = src[:len(dst)]
	f := float32(factor)
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
	case Float16:
		d := view[F16](dst)
		for i, x := range view[F16](src) {
			d[i] = ToF16(mul32(x.Float32(), f))
		}
	case Float32:
		apply(view[float32](dst), view[float32](src), func(x float32) float32 { return mul32(x, f) })
	case Float64:
		apply(view[float64](dst), view[float64](src), func(x float64) float64 { return mul64(x, factor) })
	case BFloat16:
		d := view[BF16](dst)
		for i, x := range view[BF16](src) {
			d[i] = ToBF16(mul32(x.Float32(), f))
		}
	case Float8E4M3:
		lookUpEach(dst, src, func(x E4M3) E4M3 { return ToE4M3(mul32(x.Float32(), f)) })
	case Float8E5M2:
		lookUpEach(dst, src, func(x E5M2) E5M2 { return ToE5M2(mul32(x.Float32(), f)) })
	case numDataTypes:
	}
}

func scaleInteger[T integer](dst, src []byte, factor float64) {
	f := integerFactor[T](factor)
	apply(view[T](dst), view[T](src), func(x T) T { return x * f })
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
