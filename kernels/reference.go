package kernels

import "sync"

// The reference: every reduction of every data type in plain Go. It runs where there is no vector code, and the vector
// code is compared with it.

type integer interface {
	int8 | uint8 | int32 | uint32 | int64 | uint64
}

// reference has the loops of the four reductions that have their own. It is read-only.
var reference = [numDataTypes][Min + 1]Reducer{
	Int8:       plain[int8](),
	Uint8:      plain[uint8](),
	Int32:      plain[int32](),
	Uint32:     plain[uint32](),
	Int64:      plain[int64](),
	Uint64:     plain[uint64](),
	Float16:    {Sum: sumFloat16, Prod: prodFloat16, Max: maxFloat16, Min: minFloat16},
	Float32:    plain[float32](),
	Float64:    plain[float64](),
	BFloat16:   {Sum: sumBFloat16, Prod: prodBFloat16, Max: maxBFloat16, Min: minBFloat16},
	Float8E4M3: eightBits(E4M3.Float32, ToE4M3),
	Float8E5M2: eightBits(E5M2.Float32, ToE5M2),
}

// plain returns the loops of a type with Go arithmetic.
func plain[T number]() [Min + 1]Reducer {
	return [...]Reducer{Sum: sums[T], Prod: products[T], Max: maxima[T], Min: minima[T]}
}

func sums[T number](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = add(x[i], y[i])
	}
}

func products[T number](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = mul(x[i], y[i])
	}
}

func maxima[T number](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = greatest(x[i], y[i])
	}
}

func minima[T number](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = least(x[i], y[i])
	}
}

func sumFloat16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToF16(add(x[i].Float32(), y[i].Float32()))
	}
}

func prodFloat16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToF16(mul(x[i].Float32(), y[i].Float32()))
	}
}

func maxFloat16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToF16(greatest(x[i].Float32(), y[i].Float32()))
	}
}

func minFloat16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToF16(least(x[i].Float32(), y[i].Float32()))
	}
}

func sumBFloat16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBF16(add(x[i].Float32(), y[i].Float32()))
	}
}

func prodBFloat16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBF16(mul(x[i].Float32(), y[i].Float32()))
	}
}

func maxBFloat16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBF16(greatest(x[i].Float32(), y[i].Float32()))
	}
}

func minBFloat16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBF16(least(x[i].Float32(), y[i].Float32()))
	}
}

// eightBits returns the reductions of 8-bit floats: those of the corresponding float32, rounded.
func eightBits[T E4M3 | E5M2](widen func(T) float32, round func(float32) T) [Min + 1]Reducer {
	looked := func(combine func(x, y float32) float32) Reducer {
		results := sync.OnceValue(func() *table {
			t := new(table)
			for i := range t {
				t[i] = uint8(round(combine(widen(T(i>>8)), widen(T(i&0xff)))))
			}
			return t
		})
		return func(dst, a, b []byte) { lookUp(dst, a, b, results()) }
	}
	return [...]Reducer{
		Sum: looked(add[float32]), Prod: looked(mul[float32]), Max: looked(greatest[float32]),
		Min: looked(least[float32]),
	}
}
