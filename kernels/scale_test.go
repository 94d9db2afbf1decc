package kernels

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func scaled[T Element](x T, factor float64) T {
	s := []T{x}
	Scale(Bytes(s), Bytes(s), TypeOf[T](), factor)
	return s[0]
}

func divided[T Element](x T, n int) T {
	s := []T{x}
	Divide(Bytes(s), TypeOf[T](), n)
	return s[0]
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func TestDivide(t *testing.T) {
	equal(t, "int8 -7 / 2", divided[int8](-7, 2), -3)
	equal(t, "int8 -128 / 200", divided[int8](-128, 200), 0)
	equal(t, "uint8 255 / 300", divided[uint8](255, 300), 0)
	equal(t, "uint8 255 / 2", divided[uint8](255, 2), 127)
	equal(t, "int32 lowest / 3", divided[int32](math.MinInt32, 3), -715827882)
	equal(t, "uint32 highest / 3", divided[uint32](math.MaxUint32, 3), 1431655765)
	equal(t, "int64 lowest / 3", divided[int64](math.MinInt64, 3), -3074457345618258602)
	equal(t, "uint64 highest / 3", divided[uint64](math.MaxUint64, 3), 6148914691236517205)
	equal(t, "float32 1 / 3", divided[float32](1, 3), float32(1)/3)
	equal(t, "float64 1 / 3", divided[float64](1, 3), 1.0/3)
	equal(t, "float16 1 / 3", divided(ToF16(1), 3), 0x3555)
	equal(t, "bfloat16 1 / 3", divided(ToBF16(1), 3), 0x3eab)
	equal(t, "e4m3 1 / 3", divided(ToE4M3(1), 3), ToE4M3(0.34375))
	equal(t, "e5m2 1 / 3", divided(ToE5M2(1), 3), ToE5M2(0.3125))
	for _, n := range []int{1, 0, -1} {
		equal(t, fmt.Sprintf("int32 7 / %d, which is left alone,", n), divided[int32](7, n), 7)
		signalling := math.Float32bits(divided(f32(0x7f800001), n)) // a division would make it quiet
		equal(t, fmt.Sprintf("float32 NaN / %d, which is left alone,", n), signalling, 0x7f800001)
	}
}

func TestScale(t *testing.T) {
	equal(t, "float32 3 * 0.1", scaled[float32](3, 0.1), float32(3)*float32(0.1))
	equal(t, "float64 3 * 0.1", scaled[float64](3, 0.1), math.Float64frombits(0x3fd3333333333334))
	equal(t, "float16 1 * 0.1", scaled(ToF16(1), 0.1), 0x2e66)
	equal(t, "bfloat16 1 * 0.1", scaled(ToBF16(1), 0.1), 0x3dcd)
	equal(t, "e4m3 448 * inf", scaled[E4M3](0x7e, math.Inf(1)), 0x7e)
	equal(t, "e4m3 448 * -2", scaled[E4M3](0x7e, -2), 0xfe)
	equal(t, "e5m2 57344 * 2", scaled[E5M2](0x7b, 2), 0x7c)
	equal(t, "int32 7 * 2.9", scaled[int32](7, 2.9), 14)
	equal(t, "int32 7 * -2.9", scaled[int32](7, -2.9), -14)
	equal(t, "int32 7 * NaN", scaled[int32](7, math.NaN()), 0)
}

func TestIntegerFactor(t *testing.T) {
	equal(t, "int8 1e9", integerFactor[int8](1e9), 127)
	equal(t, "int8 127.5", integerFactor[int8](127.5), 127)
	equal(t, "int8 -128.5", integerFactor[int8](-128.5), -128)
	equal(t, "uint8 -0.5", integerFactor[uint8](-0.5), 0)
	equal(t, "uint8 -3", integerFactor[uint8](-3), 0)
	equal(t, "uint8 255.9", integerFactor[uint8](255.9), 255)
	equal(t, "int32 +inf", integerFactor[int32](math.Inf(1)), math.MaxInt32)
	equal(t, "uint32 2^32", integerFactor[uint32](1<<32), math.MaxUint32)
	equal(t, "int64 2^63", integerFactor[int64](1<<63), math.MaxInt64)
	equal(t, "int64 -2^63", integerFactor[int64](-1<<63), math.MinInt64)
	equal(t, "int64 -inf", integerFactor[int64](math.Inf(-1)), math.MinInt64)
	equal(t, "uint64 2^63", integerFactor[uint64](1<<63), 1<<63)
	equal(t, "uint64 2^64", integerFactor[uint64](1<<64), math.MaxUint64)
	equal(t, "uint64 NaN", integerFactor[uint64](math.NaN()), 0)
}

// factors are critical factors: of every kind, including NaNs with bits that rounding must not carry out of.
func factors() []float64 {
	return []float64{
		0.1, 1, -3, 0, math.Copysign(0, -1), 1e-40, 1e300, math.Inf(1), math.Inf(-1),
		math.NaN(), f64(0xffffffffffffffff), f64(0x7ff0000000000001), f64(0x7fffffffe0000000),
	}
}

// TestScalingAgreesAtEveryLength compares vectors with plain Go, bit by bit.
func TestScalingAgreesAtEveryLength(t *testing.T) {
	for _, level := range levels() {
		for dt := range numDataTypes {
			r := rand.New(rand.NewPCG(5, uint64(dt)))
			lengths := []int{(256<<10)/dt.Size() + 7} // slightly more than a block
			for n := range 301 {
				lengths = append(lengths, n)
			}
			for k, n := range lengths {
				src := random(r, dt, n)
				compareScaling(t, level, dt, src, k%64, factors()[k%len(factors())], k%7+2)
			}
			specials, _ := pairs(dt)
			for off, factor := range factors() {
				compareScaling(t, level, dt, specials, off, factor, 3)
			}
		}
	}
}

// compareScaling scales and divides src, shifted by off bytes, and checks the memory around it.
func compareScaling(t *testing.T, level SIMD, dt DataType, src []byte, off int, factor float64, n int) {
	t.Helper()
	end := off + len(src)
	whole := bytes.Repeat([]byte{0xa5}, end+64)
	got, want := whole[off:end], make([]byte, len(src))
	compare := func(what string) {
		t.Helper()
		if d := diff(dt, src, src, got, want); d != "" {
			t.Fatalf("%v %v: %s: %s", level, dt, what, d)
		}
		if outside := append(whole[:off:off], whole[end:]...); bytes.Count(outside, []byte{0xa5}) != len(outside) {
			t.Fatalf("%v %v: %s: wrote outside: %x", level, dt, what, outside)
		}
	}
	scaleWith(level, got, src, dt, factor)
	scaleWith(NoSIMD, want, src, dt, factor)
	compare(fmt.Sprintf("scaled by %v (%#x)", factor, math.Float64bits(factor)))

	copy(got, src)
	scaleWith(level, got, got, dt, factor)
	compare("scaled in place")

	copy(got, src)
	copy(want, src)
	divideWith(level, got, dt, n)
	divideWith(NoSIMD, want, dt, n)
	compare(fmt.Sprintf("divided by %d", n))
}

// TestShortcutsForBytes checks that 8-bit types use another method for many elements.
func TestShortcutsForBytes(t *testing.T) {
	for _, dt := range []DataType{Int8, Uint8, Float8E4M3, Float8E5M2} {
		many := make([]byte, 1024)
		for i := range many {
			many[i] = byte(i)
		}
		src := bytes.Clone(many)
		Scale(many, many, dt, 0.7)
		Divide(many, dt, 3)
		for i := range src {
			one := src[i : i+1]
			Scale(one, one, dt, 0.7)
			Divide(one, dt, 3)
		}
		if d := diff(dt, src, src, many, src); d != "" {
			t.Errorf("%v: %s", dt, d)
		}
	}
}
