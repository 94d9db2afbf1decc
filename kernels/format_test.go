package kernels

import (
	"math"
	"testing"
)

// small is a small float format, accessed through float32.
type small struct {
	format *format
	widen  func(bits uint32) float32
	round  func(f float32) uint32
}

func smallFormats() map[DataType]small {
	return map[DataType]small{
		Float16: {
			newFormat(5, 10, true), func(b uint32) float32 { return F16(b).Float32() },
			func(f float32) uint32 { return uint32(ToF16(f)) },
		},
		BFloat16: {
			newFormat(8, 7, true), func(b uint32) float32 { return BF16(b).Float32() },
			func(f float32) uint32 { return uint32(ToBF16(f)) },
		},
		Float8E4M3: {
			newFormat(4, 3, false), func(b uint32) float32 { return E4M3(b).Float32() },
			func(f float32) uint32 { return uint32(ToE4M3(f)) },
		},
		Float8E5M2: {
			newFormat(5, 2, true), func(b uint32) float32 { return E5M2(b).Float32() },
			func(f float32) uint32 { return uint32(ToE5M2(f)) },
		},
	}
}

// TestWiden compares every number of every small format with the value of its fields.
func TestWiden(t *testing.T) {
	for dt, s := range smallFormats() {
		for bits := range uint32(1) << s.format.bits() {
			got, want := s.widen(bits), s.format.value(bits)
			if math.Float64bits(float64(got)) != math.Float64bits(want) && !(math.IsNaN(want) && got != got) {
				t.Fatalf("%v %#x is %v, want %v", dt, bits, got, want)
			}
			if got != got && (bits&s.format.sign() != 0) != math.Signbit(float64(got)) {
				t.Fatalf("%v %#x, a NaN, changed its sign", dt, bits)
			}
		}
	}
}

// TestRound checks every place where rounding changes: each number, the middle between it and the next, and the float32
// values next to them. Nothing else can differ.
func TestRound(t *testing.T) {
	for dt, s := range smallFormats() {
		for bits := range s.format.largest() + 1 {
			v := s.format.value(bits)
			next := 2*v - s.format.value(max(bits, 1)-1) // beyond the largest: the hypothetical next number
			if bits < s.format.largest() {
				next = s.format.value(bits + 1)
			}
			for _, exact := range []float64{v, (v + next) / 2} {
				f := float32(exact)
				for _, near := range []float32{f, math.Nextafter32(f, 0), math.Nextafter32(f, math.MaxFloat32)} {
					for _, x := range []float32{near, -near} {
						if got, want := s.round(x), s.format.round(float64(x)); got != want {
							t.Fatalf("%v: %v (%#x) rounds to %#x, want %#x", dt, x, math.Float32bits(x), got, want)
						}
					}
				}
			}
		}
	}
}

func TestRoundFarAway(t *testing.T) {
	for _, c := range []struct {
		dt   DataType
		f    float64
		want uint32
	}{
		{Float16, math.Inf(1), 0x7c00},
		{Float16, 65519.996, 0x7bff},
		{Float16, 65520, 0x7c00},
		{Float16, -1e38, 0xfc00},
		{Float16, 1e-45, 0},
		{Float16, math.Copysign(1e-45, -1), 0x8000},
		{BFloat16, math.Inf(-1), 0xff80},
		{BFloat16, math.MaxFloat32, 0x7f80},
		{BFloat16, 1e-45, 0},
		{Float8E4M3, 448, 0x7e},
		{Float8E4M3, 464, 0x7e},
		{Float8E4M3, 1e30, 0x7e},
		{Float8E4M3, math.Inf(1), 0x7e},
		{Float8E4M3, math.Inf(-1), 0xfe},
		{Float8E4M3, 0x1p-10, 0},
		{Float8E4M3, 0x1.000002p-10, 1},
		{Float8E5M2, 57344, 0x7b},
		{Float8E5M2, 61439.996, 0x7b},
		{Float8E5M2, 61440, 0x7c},
		{Float8E5M2, math.Inf(-1), 0xfc},
		{Float8E5M2, 1e38, 0x7c},
	} {
		if got := smallFormats()[c.dt].round(float32(c.f)); got != c.want {
			t.Errorf("%v: %v rounds to %#x, want %#x", c.dt, c.f, got, c.want)
		}
	}
}

func TestRoundNaN(t *testing.T) {
	for _, c := range []struct {
		dt         DataType
		bits, want uint32
	}{
		{Float16, 0x7fc00000, 0x7e00},
		{Float16, 0xffc00000, 0xfe00},
		{Float16, 0x7f800001, 0x7e00}, // the payload doesn't fit, but it is still a NaN
		{Float16, 0xff802000, 0xfe01},
		{Float16, 0x7fffffff, 0x7fff},
		{BFloat16, 0x7f800001, 0x7fc0},
		{BFloat16, 0xff810000, 0xffc1},
		{BFloat16, 0x7fffffff, 0x7fff},
		{Float8E4M3, 0x7f800001, 0x7f},
		{Float8E4M3, 0xffc00000, 0xff},
		{Float8E5M2, 0x7f800001, 0x7e},
		{Float8E5M2, 0xffe00000, 0xff},
	} {
		if got := smallFormats()[c.dt].round(math.Float32frombits(c.bits)); got != c.want {
			t.Errorf("%v: NaN %#x becomes %#x, want %#x", c.dt, c.bits, got, c.want)
		}
	}
}

// TestRoundUndoesWiden checks that numbers of a small format stay unchanged, except for NaNs, which become quiet.
func TestRoundUndoesWiden(t *testing.T) {
	for dt, s := range smallFormats() {
		quiet := uint32(1) << (s.format.mantissa - 1)
		for bits := range uint32(1) << s.format.bits() {
			want := bits
			if math.IsNaN(s.format.value(bits)) && s.format.infinite {
				want |= quiet
			}
			if got := s.round(s.widen(bits)); got != want {
				t.Fatalf("%v %#x becomes %#x, want %#x", dt, bits, got, want)
			}
		}
	}
}
