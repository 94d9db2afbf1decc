package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// format describes a small float format by its fields. It decodes and rounds the slow, obvious way, independent of
// the code under test.
type format struct {
	exponent, mantissa int
	infinite           bool // IEEE 754: the highest exponent holds infinities and NaNs; otherwise OCP E4M3's rules
}

var (
	formatF16  = format{5, 10, true}
	formatBF16 = format{8, 7, true}
	formatE4M3 = format{4, 3, false}
	formatE5M2 = format{5, 2, true}
)

func (f format) bits() int    { return 1 + f.exponent + f.mantissa }
func (f format) sign() uint32 { return 1 << (f.exponent + f.mantissa) }

// largest returns the magnitude of the largest finite number.
func (f format) largest() uint32 {
	if f.infinite {
		return (1<<f.exponent-1)<<f.mantissa - 1
	}
	return f.sign() - 2
}

func (f format) value(bits uint32) float64 {
	magnitude := bits &^ f.sign()
	v := math.NaN()
	switch e, m := int(magnitude>>f.mantissa), float64(magnitude&(1<<f.mantissa-1)); {
	case magnitude <= f.largest():
		bias := 1<<(f.exponent-1) - 1
		if e == 0 {
			v = math.Ldexp(m, 1-bias-f.mantissa)
		} else {
			v = math.Ldexp(m+float64(uint32(1)<<f.mantissa), e-bias-f.mantissa)
		}
	case f.infinite && m == 0:
		v = math.Inf(1)
	}
	if bits&f.sign() != 0 {
		v = -v
	}
	return v
}

// round returns the bits of the number nearest to v, which is no NaN: ties to even, overflow as the package says.
func (f format) round(v float64) uint32 {
	var sign uint32
	if math.Signbit(v) {
		sign, v = f.sign(), -v
	}
	low, high := uint32(0), f.largest()
	if v >= f.value(high) {
		// The number that would come next decides.
		step := f.value(high) - f.value(high-1)
		if f.infinite && v >= f.value(high)+step/2 {
			return sign | (high + 1)
		}
		return sign | high
	}
	for high-low > 1 { // value(low) ≤ v < value(high)
		if mid := (low + high) / 2; f.value(mid) <= v {
			low = mid
		} else {
			high = mid
		}
	}
	below, above := v-f.value(low), f.value(high)-v
	if above < below || above == below && low&1 == 1 {
		return sign | high
	}
	return sign | low
}

// special lists the bit patterns of dt that are worth combining with each other, for floats and integers alike.
func special(dt DataType) []uint64 {
	switch dt {
	case Float16:
		return append(ofFormat(formatF16), 0x3c00, 0x3555, 0xb555, 0x6bff)
	case BFloat16:
		return append(ofFormat(formatBF16), 0x3f80, 0x4049, 0xc049, 0x3eab)
	case Float32:
		return []uint64{
			0, 1, 0x7fffff, 0x800000, 0x3f800000, 0x3f800001, 0x40490fdb, 0x7f7fffff, 0x7f800000, // up to infinity
			0x80000000, 0x80000001, 0x807fffff, 0x80800000, 0xbf800000, 0xff7fffff, 0xff800000, // the same, negative
			0x7f800001, 0x7fa12345, 0x7fc00000, 0x7fc12345, 0x7fffffff, 0xff800001, 0xffa54321, 0xffc00000, 0xffffffff, // NaNs
		}
	case Float64:
		return []uint64{
			0, 1, 1<<52 - 1, 1 << 52, 0x3ff0000000000000, 0x400921fb54442d18, 0x7fefffffffffffff, 0x7ff0000000000000,
			1 << 63, 1<<63 | 1, 0x800fffffffffffff, 0xbff0000000000000, 0xffefffffffffffff, 0xfff0000000000000,
			0x7ff0000000000001, 0x7ff4123456789abc, 0x7ff8000000000000, 0x7fffffffffffffff, 0xfff0000000000001, 0xfff8000000054321,
		}
	default:
		n := dt.Size() * 8
		if n == 8 {
			all := make([]uint64, 256)
			for i := range all {
				all[i] = uint64(i)
			}
			return all
		}
		top := uint64(1) << (n - 1)
		return []uint64{0, 1, 2, 3, 100, top - 1, top, top + 1, top - 1 + top, 0x123456789abcdef & (top - 1), top / 3, top/2 + 7}
	}
}

// ofFormat lists both signs of: zero, the ends of the subnormal and normal numbers, infinity, NaNs quiet and not.
func ofFormat(f format) (patterns []uint64) {
	one, inf := uint64(1)<<f.mantissa, uint64(f.largest())+1
	for _, magnitude := range []uint64{0, 1, 2, one - 1, one, one + 1, inf - 2, inf - 1, inf, inf + 1, inf + one/2, inf + one/2 + 1, inf + one - 1} {
		patterns = append(patterns, magnitude, magnitude|uint64(f.sign()))
	}
	return patterns
}

// put writes the low Size bytes of bits as element i of buf.
func put(buf []byte, dt DataType, i int, bits uint64) {
	for k := range dt.Size() {
		buf[i*dt.Size()+k] = byte(bits >> (8 * k)) // the architectures with vector code are little-endian
	}
}

// random fills a buffer of n elements: bits of every kind, and special values among them.
func random(r *rand.Rand, dt DataType, n int) []byte {
	buf, specials := make([]byte, n*dt.Size()), special(dt)
	for i := range n {
		if r.IntN(4) == 0 {
			put(buf, dt, i, specials[r.IntN(len(specials))])
		} else {
			put(buf, dt, i, r.Uint64())
		}
	}
	return buf
}

// pairs returns every special value of dt combined with every other.
func pairs(dt DataType) (a, b []byte) {
	specials := special(dt)
	n := len(specials)
	a, b = make([]byte, n*n*dt.Size()), make([]byte, n*n*dt.Size())
	for i, x := range specials {
		for j, y := range specials {
			put(a, dt, i*n+j, x)
			put(b, dt, i*n+j, y)
		}
	}
	return a, b
}

// diff names the first element in which two buffers differ, "" if there is none.
func diff(dt DataType, a, b, got, want []byte) string {
	size := dt.Size()
	for i := 0; i < len(want); i += size {
		if string(got[i:i+size]) != string(want[i:i+size]) {
			return fmt.Sprintf("element %d of %d: %x with %x gives %x, want %x (bytes in memory order)",
				i/size, len(want)/size, a[i:i+size], b[i:i+size], got[i:i+size], want[i:i+size])
		}
	}
	return ""
}

// levels returns the vector instructions that this machine can be tested with.
func levels() (l []SIMD) {
	for s := AVX2; s <= DetectSIMD(); s++ {
		l = append(l, s)
	}
	return l
}

// eachKernel runs f for every data type, reduction and vector level that has code of its own.
func eachKernel(t *testing.T, f func(t *testing.T, dt DataType, op Reduction, vector, plain Reducer)) {
	t.Helper()
	for _, level := range levels() {
		for dt := range numDataTypes {
			for op := range Min + 1 {
				vector := vectorReducer(level, dt, op)
				if vector == nil {
					continue
				}
				t.Run(fmt.Sprintf("%v/%v/%v", level, dt, op), func(t *testing.T) {
					f(t, dt, op, vector, ReducerFor(NoSIMD, dt, op))
				})
			}
		}
	}
}
