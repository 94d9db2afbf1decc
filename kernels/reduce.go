package kernels

// Reducer sets dst[i] to a[i] op b[i] for the elements of dst. Lengths are in bytes, multiples of the element's size;
// a and b are at least as long as dst. dst may be exactly a or exactly b, but must not overlap them otherwise.
type Reducer func(dst, a, b []byte)

// ReducerOf returns the fastest Reducer for valid dt and op that this machine has and [LimitSIMD] allows, and nil if
// either is not valid. Avg and PreMulSum reduce like Sum; [Divide] and [Scale] do the rest.
func ReducerOf(dt DataType, op Reduction) Reducer { return reducerFor(activeSIMD(), dt, op) }

// reducerFor returns the Reducer that uses at most the given vector instructions; NoSIMD is the plain Go reference. The
// caller makes sure that the machine has them. All levels give the same bits.
func reducerFor(level SIMD, dt DataType, op Reduction) Reducer {
	if !dt.Valid() || !op.Valid() {
		return nil
	}
	if op == Avg || op == PreMulSum {
		op = Sum
	}
	if r := vectorReducer(level, dt, op); r != nil {
		return r
	}
	return reference[dt][op]
}
