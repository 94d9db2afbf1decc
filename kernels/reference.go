package kernels

// The reference: every reduction of every data type in plain Go. It is what runs where there is no vector code,
// and what vector code is compared with. A loop is one line around each where that is inlined, and written out where
// conversions make it too big for that.

type integer interface {
	int8 | uint8 | int32 | uint32 | int64 | uint64
}

func sumInteger[T integer](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	each(d, x, y, func(x, y T) T { return x + y })
}

func prodInteger[T integer](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	each(d, x, y, func(x, y T) T { return x * y })
}

func maxInteger[T integer](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	each(d, x, y, func(x, y T) T { return max(x, y) })
}

func minInteger[T integer](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	each(d, x, y, func(x, y T) T { return min(x, y) })
}

func sumFloat32(dst, a, b []byte) {
	d, x, y := operands[float32](dst, a, b)
	each(d, x, y, add32)
}

func prodFloat32(dst, a, b []byte) {
	d, x, y := operands[float32](dst, a, b)
	each(d, x, y, mul32)
}

func maxFloat32(dst, a, b []byte) {
	d, x, y := operands[float32](dst, a, b)
	each(d, x, y, max32)
}

func minFloat32(dst, a, b []byte) {
	d, x, y := operands[float32](dst, a, b)
	each(d, x, y, min32)
}

func sumFloat64(dst, a, b []byte) {
	d, x, y := operands[float64](dst, a, b)
	each(d, x, y, add64)
}

func prodFloat64(dst, a, b []byte) {
	d, x, y := operands[float64](dst, a, b)
	each(d, x, y, mul64)
}

func maxFloat64(dst, a, b []byte) {
	d, x, y := operands[float64](dst, a, b)
	each(d, x, y, max64)
}

func minFloat64(dst, a, b []byte) {
	d, x, y := operands[float64](dst, a, b)
	each(d, x, y, min64)
}

func sumFloat16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToF16(add32(x[i].Float32(), y[i].Float32()))
	}
}

func prodFloat16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToF16(mul32(x[i].Float32(), y[i].Float32()))
	}
}

func maxFloat16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToF16(max32(x[i].Float32(), y[i].Float32()))
	}
}

func minFloat16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToF16(min32(x[i].Float32(), y[i].Float32()))
	}
}

func sumBFloat16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBF16(add32(x[i].Float32(), y[i].Float32()))
	}
}

func prodBFloat16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBF16(mul32(x[i].Float32(), y[i].Float32()))
	}
}

func maxBFloat16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBF16(max32(x[i].Float32(), y[i].Float32()))
	}
}

func minBFloat16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBF16(min32(x[i].Float32(), y[i].Float32()))
	}
}

func sumE4M3(dst, a, b []byte)  { lookUp(dst, a, b, e4m3Sums()) }
func prodE4M3(dst, a, b []byte) { lookUp(dst, a, b, e4m3Prods()) }
func maxE4M3(dst, a, b []byte)  { lookUp(dst, a, b, e4m3Maxima()) }
func minE4M3(dst, a, b []byte)  { lookUp(dst, a, b, e4m3Minima()) }

func sumE5M2(dst, a, b []byte)  { lookUp(dst, a, b, e5m2Sums()) }
func prodE5M2(dst, a, b []byte) { lookUp(dst, a, b, e5m2Prods()) }
func maxE5M2(dst, a, b []byte)  { lookUp(dst, a, b, e5m2Maxima()) }
func minE5M2(dst, a, b []byte)  { lookUp(dst, a, b, e5m2Minima()) }
