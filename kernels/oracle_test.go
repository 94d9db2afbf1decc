package kernels

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"testing"
)

// format describes a small float format by its fields. It decodes and rounds the slow, obvious way, independent of
// the code under test.
type format struct {
	exponent, mantissa int
	infinite           bool      // IEEE 754: the highest exponent has infinities and NaNs; otherwise OCP E4M3's rules
	finite             []float64 // the finite non-negative numbers, in order
}

func newFormat(exponent, mantissa int, infinite bool) *format {
	f := &format{exponent: exponent, mantissa: mantissa, infinite: infinite}
	last := f.sign() - 2
	if infinite {
		last = (1<<exponent-1)<<mantissa - 1
	}
	bias := 1<<(exponent-1) - 1
	for bits := range last + 1 {
		e, m := int(bits>>mantissa), float64(bits&(1<<mantissa-1))/float64(uint32(1)<<mantissa)
		if e == 0 {
			f.finite = append(f.finite, math.Ldexp(m, 1-bias))
		} else {
			f.finite = append(f.finite, math.Ldexp(1+m, e-bias))
		}
	}
	return f
}

func (f *format) bits() int       { return 1 + f.exponent + f.mantissa }
func (f *format) sign() uint32    { return 1 << (f.exponent + f.mantissa) }
func (f *format) largest() uint32 { return uint32(len(f.finite) - 1) }

func (f *format) value(bits uint32) float64 {
	v := math.NaN()
	switch magnitude := bits &^ f.sign(); {
	case magnitude <= f.largest():
		v = f.finite[magnitude]
	case f.infinite && magnitude == f.largest()+1:
		v = math.Inf(1)
	}
	if bits&f.sign() != 0 {
		v = -v
	}
	return v
}

// round returns the bits of the number nearest to v, which is not a NaN: ties to even, overflow as in the package.
func (f *format) round(v float64) uint32 {
	var sign uint32
	if math.Signbit(v) {
		sign, v = f.sign(), -v
	}
	above := uint32(sort.SearchFloat64s(f.finite, v)) // the first that is not less
	switch {
	case above > f.largest():
		step := f.finite[f.largest()] - f.finite[f.largest()-1]
		if f.infinite && v >= f.finite[f.largest()]+step/2 {
			return sign | above
		}
		return sign | f.largest()
	case above == 0:
		return sign
	}
	down, up := v-f.finite[above-1], f.finite[above]-v
	if down < up || down == up && above&1 == 1 {
		return sign | (above - 1)
	}
	return sign | above
}

// special lists the bit patterns of dt that are worth combining with each other, for floats and integers alike.
func special(dt DataType) []uint64 {
	switch dt {
	case Float16:
		return append(ofFormat(10, 0x7c00), 0x3c00, 0x3555, 0xb555, 0x6bff)
	case BFloat16:
		return append(ofFormat(7, 0x7f80), 0x3f80, 0x4049, 0xc049, 0x3eab)
	case Float32:
		return []uint64{
			0, 1, 0x7fffff, 0x800000, 0x3f800000, 0x3f800001, 0x40490fdb, 0x7f7fffff, 0x7f800000, // up to infinity
			0x80000000, 0x80000001, 0x807fffff, 0x80800000, 0xbf800000, 0xff7fffff, 0xff800000, // the same, negative
			0x7f800001, 0x7fa12345, 0x7fc00000, 0x7fc12345, 0x7fffffff, // NaNs
			0xff800001, 0xffa54321, 0xffc00000, 0xffffffff,
		}
	case Float64:
		return []uint64{
			0, 1, 1<<52 - 1, 1 << 52, 0x3ff0000000000000, 0x400921fb54442d18, 0x7fefffffffffffff, 0x7ff0000000000000,
			1 << 63, 1<<63 | 1, 0x800fffffffffffff, 0xbff0000000000000, 0xffefffffffffffff, 0xfff0000000000000,
			0x7ff0000000000001, 0x7ff4123456789abc, 0x7ff8000000000000, 0x7fffffffffffffff, 0xfff0000000000001,
			0xfff8000000054321,
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
		return []uint64{
			0, 1, 2, 3, 100, top - 1, top, top + 1, top - 1 + top, 0x123456789abcdef & (top - 1),
			top / 3, top/2 + 7,
		}
	}
}

// ofFormat lists, with both signs, zero, the limits of the subnormal and normal numbers, infinity, and NaNs quiet and
// not.
func ofFormat(mantissa int, inf uint64) (patterns []uint64) {
	one := uint64(1) << mantissa
	for _, magnitude := range []uint64{
		0, 1, 2, one - 1, one, one + 1, inf - 2, inf - 1, inf, inf + 1, inf + one/2,
		inf + one/2 + 1, inf + one - 1,
	} {
		patterns = append(patterns, magnitude, magnitude|0x8000)
	}
	return patterns
}

// put writes the low Size bytes of bits as element i of buf.
func put(buf []byte, dt DataType, i int, bits uint64) {
	var le [8]byte
	binary.LittleEndian.PutUint64(le[:], bits) // like the architectures with vector code
	copy(buf[i*dt.Size():], le[:dt.Size()])
}

// random returns n elements: random bits, mixed with special values. They repeat after some thousand elements.
func random(r *rand.Rand, dt DataType, n int) []byte {
	const period = 4099 // a prime, so as not to align with vectors
	buf, specials := make([]byte, min(n, period)*dt.Size()), special(dt)
	for i := range min(n, period) {
		if r.IntN(4) == 0 {
			put(buf, dt, i, specials[r.IntN(len(specials))])
		} else {
			put(buf, dt, i, r.Uint64())
		}
	}
	if n > period {
		buf = bytes.Repeat(buf, n/period+1)
	}
	return buf[:n*dt.Size()]
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

// diff describes the first element in which two buffers differ, "" if there is none.
func diff(dt DataType, a, b, got, want []byte) string {
	if bytes.Equal(got, want) {
		return ""
	}
	size := dt.Size()
	for i := 0; i < len(want); i += size {
		if string(got[i:i+size]) != string(want[i:i+size]) {
			return fmt.Sprintf("element %d of %d: %x with %x gives %x, want %x (bytes in memory order)",
				i/size, len(want)/size, a[i:i+size], b[i:i+size], got[i:i+size], want[i:i+size])
		}
	}
	return ""
}

// levels returns the vector instruction sets that can be tested on this machine.
func levels() (l []SIMD) {
	for s := AVX2; s <= DetectSIMD(); s++ {
		l = append(l, s)
	}
	return l
}

// eachKernel runs f for every data type, reduction and vector level with separate code.
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
					f(t, dt, op, vector, reducerFor(NoSIMD, dt, op))
				})
			}
		}
	}
}
