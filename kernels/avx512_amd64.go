package kernels

// avx512 has the kernels that use AVX-512. They accept any n.
var avx512 = [numDataTypes][Min + 1]kernel{
	Int8:     {Sum: sumInt8AVX512, Max: maxInt8AVX512, Min: minInt8AVX512},
	Uint8:    {Sum: sumInt8AVX512, Max: maxUint8AVX512, Min: minUint8AVX512},
	Int32:    {Sum: sumInt32AVX512, Prod: prodInt32AVX512, Max: maxInt32AVX512, Min: minInt32AVX512},
	Uint32:   {Sum: sumInt32AVX512, Prod: prodInt32AVX512, Max: maxUint32AVX512, Min: minUint32AVX512},
	Int64:    {Sum: sumInt64AVX512, Prod: prodInt64AVX512, Max: maxInt64AVX512, Min: minInt64AVX512},
	Uint64:   {Sum: sumInt64AVX512, Prod: prodInt64AVX512, Max: maxUint64AVX512, Min: minUint64AVX512},
	Float16:  {Sum: sumFloat16AVX512, Prod: prodFloat16AVX512, Max: maxFloat16AVX512, Min: minFloat16AVX512},
	Float32:  {Sum: sumFloat32AVX512, Prod: prodFloat32AVX512, Max: maxFloat32AVX512, Min: minFloat32AVX512},
	Float64:  {Sum: sumFloat64AVX512, Prod: prodFloat64AVX512, Max: maxFloat64AVX512, Min: minFloat64AVX512},
	BFloat16: {Sum: sumBFloat16AVX512, Prod: prodBFloat16AVX512, Max: maxBFloat16AVX512, Min: minBFloat16AVX512},
}

// avx512Scalers has the kernels that multiply by a constant, and those that divide by one.
var avx512Scalers = [numDataTypes][2]scaler{
	Float16:  {multiply: mulFloat16AVX512, divide: divFloat16AVX512},
	Float32:  {multiply: mulFloat32AVX512, divide: divFloat32AVX512},
	Float64:  {multiply: mulFloat64AVX512, divide: divFloat64AVX512},
	BFloat16: {multiply: mulBFloat16AVX512, divide: divBFloat16AVX512},
}

func sumFloat32AVX512(dst, a, b *byte, n int)
func prodFloat32AVX512(dst, a, b *byte, n int)
func maxFloat32AVX512(dst, a, b *byte, n int)
func minFloat32AVX512(dst, a, b *byte, n int)

func sumFloat64AVX512(dst, a, b *byte, n int)
func prodFloat64AVX512(dst, a, b *byte, n int)
func maxFloat64AVX512(dst, a, b *byte, n int)
func minFloat64AVX512(dst, a, b *byte, n int)

func sumFloat16AVX512(dst, a, b *byte, n int)
func prodFloat16AVX512(dst, a, b *byte, n int)
func maxFloat16AVX512(dst, a, b *byte, n int)
func minFloat16AVX512(dst, a, b *byte, n int)

func sumBFloat16AVX512(dst, a, b *byte, n int)
func prodBFloat16AVX512(dst, a, b *byte, n int)
func maxBFloat16AVX512(dst, a, b *byte, n int)
func minBFloat16AVX512(dst, a, b *byte, n int)

func sumInt8AVX512(dst, a, b *byte, n int)
func maxInt8AVX512(dst, a, b *byte, n int)
func minInt8AVX512(dst, a, b *byte, n int)

func maxUint8AVX512(dst, a, b *byte, n int)
func minUint8AVX512(dst, a, b *byte, n int)

func sumInt32AVX512(dst, a, b *byte, n int)
func prodInt32AVX512(dst, a, b *byte, n int)
func maxInt32AVX512(dst, a, b *byte, n int)
func minInt32AVX512(dst, a, b *byte, n int)

func maxUint32AVX512(dst, a, b *byte, n int)
func minUint32AVX512(dst, a, b *byte, n int)

func sumInt64AVX512(dst, a, b *byte, n int)
func prodInt64AVX512(dst, a, b *byte, n int)
func maxInt64AVX512(dst, a, b *byte, n int)
func minInt64AVX512(dst, a, b *byte, n int)

func maxUint64AVX512(dst, a, b *byte, n int)
func minUint64AVX512(dst, a, b *byte, n int)

func mulFloat32AVX512(dst, src *byte, n int, by uint64)
func mulFloat64AVX512(dst, src *byte, n int, by uint64)
func mulFloat16AVX512(dst, src *byte, n int, by uint64)
func mulBFloat16AVX512(dst, src *byte, n int, by uint64)

func divFloat32AVX512(dst, src *byte, n int, by uint64)
func divFloat64AVX512(dst, src *byte, n int, by uint64)
func divFloat16AVX512(dst, src *byte, n int, by uint64)
func divBFloat16AVX512(dst, src *byte, n int, by uint64)
