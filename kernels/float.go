package kernels

import "math"

const (
	quiet32 = 1 << 22 // the bit that makes a float32 NaN quiet
	quiet64 = 1 << 51
)

// number is an element type with Go arithmetic.
type number interface {
	integer | float32 | float64
}

// add and the functions like it define arithmetic in this package: Go's, with the NaN chosen by nan, because in Go it
// depends on the processor which operand's payload survives. The compiler omits that for integers.
func add[T number](x, y T) T {
	s := x + y
	if s != s {
		return nan(x, y)
	}
	return s
}

func mul[T number](x, y T) T {
	p := x * y
	if p != p {
		return nan(x, y)
	}
	return p
}

func div[T float32 | float64](x, y T) T {
	q := x / y
	if q != q {
		return nan(x, y)
	}
	return q
}

func least[T number](x, y T) T {
	m := min(x, y)
	if m != m {
		return nan(x, y)
	}
	return m
}

func greatest[T number](x, y T) T {
	m := max(x, y)
	if m != m {
		return nan(x, y)
	}
	return m
}

// nan returns the NaN that results from an operation on x and y. It is kept out of line, so that its callers are
// inlined.
//
//go:noinline
func nan[T number](x, y T) T {
	if x == x {
		x = y
	}
	made := x == x // no operand is a NaN: the NaN that x86 makes
	switch x := any(&x).(type) {
	case *float32:
		if *x = math.Float32frombits(math.Float32bits(*x) | quiet32); made {
			*x = math.Float32frombits(0xffc00000)
		}
	case *float64:
		if *x = math.Float64frombits(math.Float64bits(*x) | quiet64); made {
			*x = math.Float64frombits(0xfff8000000000000)
		}
	}
	return x
}
