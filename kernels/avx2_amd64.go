package kernels

// avx2 has the kernels that use AVX2 and F16C. Their n is a multiple of 32. Missing entries have no suitable
// instruction.
var avx2 = [numDataTypes][Min + 1]kernel{
	Int8:     {Sum: sumInt8AVX2, Max: maxInt8AVX2, Min: minInt8AVX2},
	Uint8:    {Sum: sumInt8AVX2, Max: maxUint8AVX2, Min: minUint8AVX2},
	Int32:    {Sum: sumInt32AVX2, Prod: prodInt32AVX2, Max: maxInt32AVX2, Min: minInt32AVX2},
	Uint32:   {Sum: sumInt32AVX2, Prod: prodInt32AVX2, Max: maxUint32AVX2, Min: minUint32AVX2},
	Int64:    {Sum: sumInt64AVX2, Max: maxInt64AVX2, Min: minInt64AVX2},
	Uint64:   {Sum: sumInt64AVX2, Max: maxUint64AVX2, Min: minUint64AVX2},
	Float16:  {Sum: sumFloat16AVX2, Prod: prodFloat16AVX2, Max: maxFloat16AVX2, Min: minFloat16AVX2},
	Float32:  {Sum: sumFloat32AVX2, Prod: prodFloat32AVX2, Max: maxFloat32AVX2, Min: minFloat32AVX2},
	Float64:  {Sum: sumFloat64AVX2, Prod: prodFloat64AVX2, Max: maxFloat64AVX2, Min: minFloat64AVX2},
	BFloat16: {Sum: sumBFloat16AVX2, Prod: prodBFloat16AVX2, Max: maxBFloat16AVX2, Min: minBFloat16AVX2},
}

// avx2Scalers has the kernels that multiply by a constant, and those that divide by one.
var avx2Scalers = [numDataTypes][2]scaler{
	Float16:  {multiply: mulFloat16AVX2, divide: divFloat16AVX2},
	Float32:  {multiply: mulFloat32AVX2, divide: divFloat32AVX2},
	Float64:  {multiply: mulFloat64AVX2, divide: divFloat64AVX2},
	BFloat16: {multiply: mulBFloat16AVX2, divide: divBFloat16AVX2},
}

func sumFloat32AVX2(dst, a, b *byte, n int)
func prodFloat32AVX2(dst, a, b *byte, n int)
func maxFloat32AVX2(dst, a, b *byte, n int)
func minFloat32AVX2(dst, a, b *byte, n int)

func sumFloat64AVX2(dst, a, b *byte, n int)
func prodFloat64AVX2(dst, a, b *byte, n int)
func maxFloat64AVX2(dst, a, b *byte, n int)
func minFloat64AVX2(dst, a, b *byte, n int)

func sumFloat16AVX2(dst, a, b *byte, n int)
func prodFloat16AVX2(dst, a, b *byte, n int)
func maxFloat16AVX2(dst, a, b *byte, n int)
func minFloat16AVX2(dst, a, b *byte, n int)

func sumBFloat16AVX2(dst, a, b *byte, n int)
func prodBFloat16AVX2(dst, a, b *byte, n int)
func maxBFloat16AVX2(dst, a, b *byte, n int)
func minBFloat16AVX2(dst, a, b *byte, n int)

func sumInt8AVX2(dst, a, b *byte, n int)
func maxInt8AVX2(dst, a, b *byte, n int)
func minInt8AVX2(dst, a, b *byte, n int)

func maxUint8AVX2(dst, a, b *byte, n int)
func minUint8AVX2(dst, a, b *byte, n int)

func sumInt32AVX2(dst, a, b *byte, n int)
func prodInt32AVX2(dst, a, b *byte, n int)
func maxInt32AVX2(dst, a, b *byte, n int)
func minInt32AVX2(dst, a, b *byte, n int)

func maxUint32AVX2(dst, a, b *byte, n int)
func minUint32AVX2(dst, a, b *byte, n int)

func sumInt64AVX2(dst, a, b *byte, n int)
func maxInt64AVX2(dst, a, b *byte, n int)
func minInt64AVX2(dst, a, b *byte, n int)

func maxUint64AVX2(dst, a, b *byte, n int)
func minUint64AVX2(dst, a, b *byte, n int)

func mulFloat32AVX2(dst, src *byte, n int, by uint64)
func mulFloat64AVX2(dst, src *byte, n int, by uint64)
func mulFloat16AVX2(dst, src *byte, n int, by uint64)
func mulBFloat16AVX2(dst, src *byte, n int, by uint64)

func divFloat32AVX2(dst, src *byte, n int, by uint64)
func divFloat64AVX2(dst, src *byte, n int, by uint64)
func divFloat16AVX2(dst, src *byte, n int, by uint64)
func divBFloat16AVX2(dst, src *byte, n int, by uint64)
