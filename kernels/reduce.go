package kernels

// Reducer sets dst[i] to a[i] op b[i] for the elements of dst. Lengths are in bytes, multiples of the element's size;
// a and b are at least as long as dst. dst may be exactly a or exactly b, but must not overlap them otherwise.
type Reducer func(dst, a, b []byte)

// ReducerOf returns the fastest Reducer for valid dt and op that this machine has and [LimitSIMD] allows, and nil
// if either is not valid. Avg and PreMulSum reduce like Sum; what they do besides is [Divide]'s and [Scale]'s.
func ReducerOf(dt DataType, op Reduction) Reducer { return ReducerFor(ActiveSIMD(), dt, op) }

// ReducerFor returns the Reducer that uses at most the given vector instructions, NoSIMD for the plain Go
// reference. The caller makes sure that the machine has them. All of them give the same bits.
func ReducerFor(level SIMD, dt DataType, op Reduction) Reducer {
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

// Reduce sets dst[i] to a[i] op b[i], as [ReducerOf](dt, op) does. dt and op must be valid.
func Reduce(dst, a, b []byte, dt DataType, op Reduction) { ReducerOf(dt, op)(dst, a, b) }

// reference has the plain Go loops of the four reductions that are loops of their own. It is never written.
var reference = [numDataTypes][Min + 1]Reducer{
	Int8:       {Sum: sumInteger[int8], Prod: prodInteger[int8], Max: maxInteger[int8], Min: minInteger[int8]},
	Uint8:      {Sum: sumInteger[uint8], Prod: prodInteger[uint8], Max: maxInteger[uint8], Min: minInteger[uint8]},
	Int32:      {Sum: sumInteger[int32], Prod: prodInteger[int32], Max: maxInteger[int32], Min: minInteger[int32]},
	Uint32:     {Sum: sumInteger[uint32], Prod: prodInteger[uint32], Max: maxInteger[uint32], Min: minInteger[uint32]},
	Int64:      {Sum: sumInteger[int64], Prod: prodInteger[int64], Max: maxInteger[int64], Min: minInteger[int64]},
	Uint64:     {Sum: sumInteger[uint64], Prod: prodInteger[uint64], Max: maxInteger[uint64], Min: minInteger[uint64]},
	Float16:    {Sum: sumFloat16, Prod: prodFloat16, Max: maxFloat16, Min: minFloat16},
	Float32:    {Sum: sumFloat32, Prod: prodFloat32, Max: maxFloat32, Min: minFloat32},
	Float64:    {Sum: sumFloat64, Prod: prodFloat64, Max: maxFloat64, Min: minFloat64},
	BFloat16:   {Sum: sumBFloat16, Prod: prodBFloat16, Max: maxBFloat16, Min: minBFloat16},
	Float8E4M3: {Sum: sumE4M3, Prod: prodE4M3, Max: maxE4M3, Min: minE4M3},
	Float8E5M2: {Sum: sumE5M2, Prod: prodE5M2, Max: maxE5M2, Min: minE5M2},
}
