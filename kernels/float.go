package kernels

import "math"

const (
	quiet32 = 1 << 22 // the bit that makes a float32 NaN quiet
	quiet64 = 1 << 51

	// The NaN that x86 makes from operands that are none.
	madeNaN32 = 0xffc00000
	madeNaN64 = 0xfff8000000000000
)

// add32 and its like are what float arithmetic means in this package: Go's, with the NaN chosen by nan32, because
// Go leaves it to the processor which operand's payload survives.
func add32(x, y float32) float32 {
	s := x + y
	if s != s {
		return nan32(x, y)
	}
	return s
}

func mul32(x, y float32) float32 {
	p := x * y
	if p != p {
		return nan32(x, y)
	}
	return p
}

func div32(x, y float32) float32 {
	q := x / y
	if q != q {
		return nan32(x, y)
	}
	return q
}

func min32(x, y float32) float32 {
	m := min(x, y)
	if m != m {
		return nan32(x, y)
	}
	return m
}

func max32(x, y float32) float32 {
	m := max(x, y)
	if m != m {
		return nan32(x, y)
	}
	return m
}

// nan32 returns the NaN that an operation on x and y results in. Kept out of line, so that its callers are inlined.
//
//go:noinline
func nan32(x, y float32) float32 {
	switch {
	case x != x:
		return math.Float32frombits(math.Float32bits(x) | quiet32)
	case y != y:
		return math.Float32frombits(math.Float32bits(y) | quiet32)
	default:
		return math.Float32frombits(madeNaN32)
	}
}

func add64(x, y float64) float64 {
	s := x + y
	if s != s {
		return nan64(x, y)
	}
	return s
}

func mul64(x, y float64) float64 {
	p := x * y
	if p != p {
		return nan64(x, y)
	}
	return p
}

func div64(x, y float64) float64 {
	q := x / y
	if q != q {
		return nan64(x, y)
	}
	return q
}

func min64(x, y float64) float64 {
	m := min(x, y)
	if m != m {
		return nan64(x, y)
	}
	return m
}

func max64(x, y float64) float64 {
	m := max(x, y)
	if m != m {
		return nan64(x, y)
	}
	return m
}

//go:noinline
func nan64(x, y float64) float64 {
	switch {
	case x != x:
		return math.Float64frombits(math.Float64bits(x) | quiet64)
	case y != y:
		return math.Float64frombits(math.Float64bits(y) | quiet64)
	default:
		return math.Float64frombits(madeNaN64)
	}
}
