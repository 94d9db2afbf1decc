package kernels

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

func f32(bits uint32) float32 { return math.Float32frombits(bits) }
func f64(bits uint64) float64 { return math.Float64frombits(bits) }

// check reduces one pair and compares the bits, in plain Go and with every set of vector instructions.
func check[T Element](t *testing.T, op Reduction, a, b, want T) {
	t.Helper()
	dt := TypeOf[T]()
	for level := NoSIMD; level <= DetectSIMD(); level++ {
		// Enough elements for whole vectors and a remainder.
		x, y, d := make([]T, 67), make([]T, 67), make([]T, 67)
		for i := range x {
			x[i], y[i] = a, b
		}
		reducerFor(level, dt, op)(Bytes(d), Bytes(x), Bytes(y))
		for i := range d {
			if got := d[i : i+1]; string(Bytes(got)) != string(Bytes([]T{want})) {
				t.Fatalf("%v %v, vectors %v: element %d: %x with %x gives %x, want %x (bytes in memory order)",
					op, dt, level, i, Bytes(x[:1]), Bytes(y[:1]), Bytes(got), Bytes([]T{want}))
			}
		}
	}
}

func TestIntegersWrap(t *testing.T) {
	check[int8](t, Sum, 127, 1, -128)
	check[int8](t, Prod, -128, -1, -128)
	check[uint8](t, Sum, 255, 2, 1)
	check[uint8](t, Prod, 16, 17, 16)
	check[int32](t, Sum, math.MinInt32, -1, math.MaxInt32)
	check[uint32](t, Prod, 1<<31, 2, 0)
	check[int64](t, Sum, math.MaxInt64, 1, math.MinInt64)
	check[int64](t, Prod, math.MaxInt64, 2, -2)
	check[uint64](t, Sum, math.MaxUint64, 1, 0)
}

func TestIntegersOrderBySign(t *testing.T) {
	check[int8](t, Min, -1, 1, -1)
	check[uint8](t, Min, 0xff, 1, 1)
	check[int32](t, Max, -1, 1, 1)
	check[uint32](t, Max, math.MaxUint32, 1, math.MaxUint32)
	check[int64](t, Min, math.MinInt64, math.MaxInt64, math.MinInt64)
	check[uint64](t, Min, 1<<63, 1<<63-1, 1<<63-1)
	check[uint64](t, Max, 1<<63, 1<<63-1, 1<<63)
}

func TestZerosAreOrdered(t *testing.T) {
	const n32, n64 = 1 << 31, 1 << 63
	check(t, Min, f32(0), f32(n32), f32(n32))
	check(t, Min, f32(n32), f32(0), f32(n32))
	check(t, Max, f32(0), f32(n32), f32(0))
	check(t, Max, f32(n32), f32(0), f32(0))
	check(t, Max, f32(n32), f32(n32), f32(n32))
	check(t, Min, f64(0), f64(n64), f64(n64))
	check(t, Max, f64(n64), f64(0), f64(0))
	check[F16](t, Min, 0, 0x8000, 0x8000)
	check[F16](t, Max, 0x8000, 0, 0)
	check[BF16](t, Min, 0x8000, 0, 0x8000)
	check[BF16](t, Max, 0, 0x8000, 0)
	check[E4M3](t, Min, 0, 0x80, 0x80)
	check[E5M2](t, Max, 0x80, 0, 0)
}

// TestNaNs checks that the first operand that is a NaN wins, made quiet, with its sign and payload.
func TestNaNs(t *testing.T) {
	for _, op := range []Reduction{Sum, Prod, Max, Min, Avg, PreMulSum} {
		check(t, op, f32(0x7f800001), f32(0x3f800000), f32(0x7fc00001))
		check(t, op, f32(0x3f800000), f32(0xffa54321), f32(0xffe54321))
		check(t, op, f32(0x7fc00002), f32(0xff800001), f32(0x7fc00002))
		check(t, op, f32(0xff800001), f32(0x7fc00002), f32(0xffc00001))
		check(t, op, f64(0x7ff0000000000001), f64(1), f64(0x7ff8000000000001))
		check(t, op, f64(1), f64(0xfff4000000000005), f64(0xfffc000000000005))
		check(t, op, f64(0xfff8000000000007), f64(0x7ff0000000000001), f64(0xfff8000000000007))
		check[F16](t, op, 0x7c01, 0xfe02, 0x7e01)
		check[F16](t, op, 0x3c00, 0xfd55, 0xff55)
		check[BF16](t, op, 0x7f81, 0xffc2, 0x7fc1)
		check[BF16](t, op, 0x3f80, 0xffa5, 0xffe5)
		check[E4M3](t, op, 0xff, 0x7f, 0xff)
		check[E4M3](t, op, 0x38, 0x7f, 0x7f)
		check[E5M2](t, op, 0x7d, 0xfe, 0x7f)
		check[E5M2](t, op, 0x3c, 0xfd, 0xff)
	}
}

// TestNaNsOutOfNumbers tests infinity minus infinity, and zero times infinity.
func TestNaNsOutOfNumbers(t *testing.T) {
	check(t, Sum, f32(0x7f800000), f32(0xff800000), f32(0xffc00000))
	check(t, Prod, f32(0x80000000), f32(0x7f800000), f32(0xffc00000))
	check(t, Sum, math.Inf(-1), math.Inf(1), f64(0xfff8000000000000))
	check(t, Prod, 0, math.Inf(1), f64(0xfff8000000000000))
	check[F16](t, Sum, 0x7c00, 0xfc00, 0xfe00)
	check[F16](t, Prod, 0x7c00, 0, 0xfe00)
	check[BF16](t, Sum, 0xff80, 0x7f80, 0xffc0)
	check[BF16](t, Prod, 0xff80, 0x8000, 0xffc0)
	check[E5M2](t, Sum, 0x7c, 0xfc, 0xfe)
	check[E5M2](t, Prod, 0, 0xfc, 0xfe)
}

func TestOverflow(t *testing.T) {
	check(t, Sum, math.MaxFloat32, math.MaxFloat32, float32(math.Inf(1)))
	check(t, Prod, -math.MaxFloat64, 2, math.Inf(-1))
	check[F16](t, Sum, 0x7bff, 0x4c00, 0x7c00)  // 65504 + 16 is halfway to the hypothetical next number: even, so up
	check[F16](t, Sum, 0x7bff, 0x4bff, 0x7bff)  // 65504 + 15.99
	check[BF16](t, Sum, 0xff7f, 0xff7f, 0xff80) // -inf
	check[E4M3](t, Sum, 0x7e, 0x7e, 0x7e)       // 448 + 448: saturates
	check[E4M3](t, Prod, 0x7e, 0xfe, 0xfe)
	check[E5M2](t, Sum, 0x7b, 0x7b, 0x7c) // 57344 + 57344: infinity
}

func TestSubnormals(t *testing.T) {
	check(t, Sum, f32(1), f32(0x807fffff), f32(0x807ffffe))
	check(t, Prod, f32(0x00800000), 0.5, f32(0x00400000))
	check(t, Sum, f64(1), f64(1), f64(2))
	check[F16](t, Sum, 1, 0x03ff, 0x0400)
	check[F16](t, Prod, 0x0400, 0x3800, 0x0200)
	check[BF16](t, Sum, 1, 1, 2)
	check[BF16](t, Min, 1, 2, 1)
	check[E4M3](t, Sum, 1, 2, 3)
	check[E5M2](t, Prod, 0x04, 0x38, 0x02)
}

func TestTiesGoToEven(t *testing.T) {
	check[F16](t, Sum, 0x6800, 0x3c00, 0x6800)  // 2048 + 1: between 2048 and 2050
	check[F16](t, Sum, 0x6801, 0x3c00, 0x6802)  // 2050 + 1: between 2050 and 2052
	check[BF16](t, Sum, 0x4380, 0x3f80, 0x4380) // 256 + 1: between 256 and 258
	check[BF16](t, Sum, 0x4381, 0x3f80, 0x4382)
	check[E4M3](t, Sum, 0x58, 0x38, 0x58) // 16 + 1: between 16 and 18
	check[E4M3](t, Sum, 0x59, 0x38, 0x5a)
	check[E5M2](t, Sum, 0x48, 0x3c, 0x48) // 8 + 1: between 8 and 10
	check[E5M2](t, Sum, 0x49, 0x3c, 0x4a)
}

// TestSmallFloatsAgainstOracle reduces every pair of special values the slow way: in float64, which holds all relevant
// sums and products of these numbers, to float32, to the format.
func TestSmallFloatsAgainstOracle(t *testing.T) {
	for dt, s := range smallFormats() {
		for op := range Min + 1 {
			a, b := pairs(dt)
			got := make([]byte, len(a))
			reference[dt][op](got, a, b)
			for i := 0; i < len(a); i += dt.Size() {
				x, y := s.format.value(get(a[i:], dt)), s.format.value(get(b[i:], dt))
				var r float64
				switch op {
				case Sum:
					r = x + y
				case Prod:
					r = x * y
				case Max:
					r = math.Max(x, y)
				default:
					r = math.Min(x, y)
				}
				if math.IsNaN(x) || math.IsNaN(y) || math.IsNaN(r) {
					if v := s.format.value(get(got[i:], dt)); !math.IsNaN(v) {
						t.Fatalf("%v of %v: %v and %v give %v, want a NaN", op, dt, x, y, v)
					}
					continue
				}
				if want := s.format.round(float64(float32(r))); get(got[i:], dt) != want {
					t.Fatalf("%v of %v: %v and %v give %#x, want %#x", op, dt, x, y, get(got[i:], dt), want)
				}
			}
		}
	}
}

// get reads a small float's bits.
func get(b []byte, dt DataType) uint32 {
	if dt.Size() == 1 {
		return uint32(b[0])
	}
	return uint32(view[F16](b[:2])[0])
}

// TestFloat32SumAgainstOracle relies on float64 being precise enough for a float32 sum that rounding twice does no
// harm.
func TestFloat32SumAgainstOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 100_000 {
		x, y := f32(r.Uint32()), f32(r.Uint32())
		got, want := add(x, y), float32(float64(x)+float64(y))
		if got != want && !(got != got && want != want) {
			t.Fatalf("%v + %v = %v, want %v", x, y, got, want)
		}
	}
}

// TestIntegersAgainstOracle compares with integers that can't overflow.
func TestIntegersAgainstOracle(t *testing.T) {
	integersAgainstOracle[int8](t)
	integersAgainstOracle[uint8](t)
	integersAgainstOracle[int32](t)
	integersAgainstOracle[uint32](t)
	integersAgainstOracle[int64](t)
	integersAgainstOracle[uint64](t)
}

func integersAgainstOracle[T integer](t *testing.T) {
	dt := TypeOf[T]()
	exact := func(x T) *big.Int {
		if x < 0 {
			return big.NewInt(int64(x))
		}
		return new(big.Int).SetUint64(uint64(x))
	}
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(dt.Size()*8))
	wrapped := func(n *big.Int) T { return T(n.Mod(n, modulus).Uint64()) }
	a, b := pairs(dt)
	for op := range Min + 1 {
		got := make([]byte, len(a))
		reference[dt][op](got, a, b)
		for i, x := range view[T](a) {
			m, n := exact(x), exact(view[T](b)[i])
			want := new(big.Int)
			switch op {
			case Sum:
				want.Add(m, n)
			case Prod:
				want.Mul(m, n)
			case Max:
				want.Set(m)
				if n.Cmp(m) > 0 {
					want.Set(n)
				}
			default:
				want.Set(m)
				if n.Cmp(m) < 0 {
					want.Set(n)
				}
			}
			if got, want := view[T](got)[i], wrapped(want); got != want {
				t.Fatalf("%v of %v: %v and %v give %v, want %v", op, dt, m, n, got, want)
			}
		}
	}
}

// TestAvgAndPreMulSumReduceLikeSum checks that Avg and PreMulSum reduce like Sum: dividing and scaling are separate
// steps.
func TestAvgAndPreMulSumReduceLikeSum(t *testing.T) {
	for dt := range numDataTypes {
		a, b := pairs(dt)
		want, got := make([]byte, len(a)), make([]byte, len(a))
		ReducerOf(dt, Sum)(want, a, b)
		for _, op := range []Reduction{Avg, PreMulSum} {
			ReducerOf(dt, op)(got, a, b)
			if d := diff(dt, a, b, got, want); d != "" {
				t.Errorf("%v of %v: %s", op, dt, d)
			}
		}
	}
}

func TestReducerOfWhatIsNotValid(t *testing.T) {
	for _, bad := range []Reducer{
		ReducerOf(numDataTypes, Sum), ReducerOf(255, Sum), ReducerOf(Int8, numReductions),
		ReducerOf(Int8, 255),
	} {
		if bad != nil {
			t.Error("there is a reducer for what is not valid")
		}
	}
}

// TestShortOperandsStop checks that a caller's mistake does not become an out-of-bounds read.
func TestShortOperandsStop(t *testing.T) {
	for level := NoSIMD; level <= DetectSIMD(); level++ {
		for dt := range numDataTypes {
			for _, n := range [][3]int{{512, 504, 512}, {512, 512, 504}} {
				func() {
					defer func() {
						if recover() == nil {
							t.Errorf("%v %v: lengths %v were accepted", level, dt, n)
						}
					}()
					reducerFor(level, dt, Sum)(make([]byte, n[0]), make([]byte, n[1]), make([]byte, n[2]))
				}()
			}
		}
	}
}

func TestNothingAllocates(t *testing.T) {
	dst, src := make([]byte, 4096), make([]byte, 4096)
	for dt := range numDataTypes {
		for op := range numReductions {
			ReducerOf(dt, op)(dst, dst, src) // tables are made only once
			if n := testing.AllocsPerRun(10, func() { ReducerOf(dt, op)(dst, dst, src) }); n != 0 {
				t.Errorf("Reduce of %v %v allocates %v times", dt, op, n)
			}
		}
		if n := testing.AllocsPerRun(10, func() { Scale(dst, src, dt, 3); Divide(dst, dt, 3) }); n != 0 {
			t.Errorf("Scale and Divide of %v allocate %v times", dt, n)
		}
	}
	if n := testing.AllocsPerRun(10, func() { Copy(dst, src) }); n != 0 {
		t.Errorf("Copy allocates %v times", n)
	}
}
