// Package kernelstest has the elements for tests of reductions, and the reference for them.
package kernelstest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/carillon-rt/carillon/kernels"
)

// DataTypes are all data types of package kernels.
var DataTypes = []kernels.DataType{
	kernels.Int8, kernels.Uint8, kernels.Int32, kernels.Uint32, kernels.Int64, kernels.Uint64, kernels.Float16,
	kernels.Float32, kernels.Float64, kernels.BFloat16, kernels.Float8E4M3, kernels.Float8E5M2,
}

// Reductions are all reductions of package kernels.
var Reductions = []kernels.Reduction{
	kernels.Sum, kernels.Prod, kernels.Max, kernels.Min, kernels.Avg, kernels.PreMulSum,
}

// Random returns n elements of random bits, which include NaNs, infinities and subnormal numbers; special values are
// more frequent than by chance.
func Random(rng *rand.Rand, dt kernels.DataType, n int) []byte {
	b := make([]byte, n*dt.Size())
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	special := [][]byte{
		make([]byte, 8), bytes.Repeat([]byte{0xff}, 8), // +0, NaN
		append(make([]byte, dt.Size()-1), 0x80), append(make([]byte, dt.Size()-1), 0x7c), // -0, infinity of float8 e5m2
	}
	switch dt {
	case kernels.Float16:
		special = append(special, []byte{0, 0x7c}, []byte{0, 0xfc}, []byte{1, 0x7c}, []byte{1, 0})
	case kernels.BFloat16:
		special = append(special, []byte{0x80, 0x7f}, []byte{0x80, 0xff}, []byte{0x81, 0x7f})
	case kernels.Float32:
		special = append(special, []byte{0, 0, 0x80, 0x7f}, []byte{0, 0, 0x80, 0xff}, []byte{1, 0, 0x80, 0x7f})
	case kernels.Float64:
		special = append(special, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x7f}, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0xff})
	default:
	}
	for i := range n {
		if rng.IntN(4) == 0 {
			copy(b[i*dt.Size():(i+1)*dt.Size()], special[rng.IntN(len(special))])
		}
	}
	return b
}

// wide returns the elements as float32, and whether a reduction of the type is computed in float32.
func wide(dt kernels.DataType, b []byte) ([]byte, bool) {
	var w []float32
	each := func(size int, widen func(b []byte) float32) {
		for i := 0; i < len(b); i += size {
			w = append(w, widen(b[i:]))
		}
	}
	switch dt {
	case kernels.Float16:
		each(2, func(b []byte) float32 { return kernels.F16(binary.NativeEndian.Uint16(b)).Float32() })
	case kernels.BFloat16:
		each(2, func(b []byte) float32 { return kernels.BF16(binary.NativeEndian.Uint16(b)).Float32() })
	case kernels.Float8E4M3:
		each(1, func(b []byte) float32 { return kernels.E4M3(b[0]).Float32() })
	case kernels.Float8E5M2:
		each(1, func(b []byte) float32 { return kernels.E5M2(b[0]).Float32() })
	default:
		return b, false
	}
	return kernels.Bytes(w), true
}

func narrow(dt kernels.DataType, b []byte) []byte {
	var n []byte
	for i := 0; i < len(b); i += 4 {
		var f float32
		_, _ = binary.Decode(b[i:], binary.NativeEndian, &f)
		switch dt {
		case kernels.Float16:
			n = binary.NativeEndian.AppendUint16(n, uint16(kernels.ToF16(f)))
		case kernels.BFloat16:
			n = binary.NativeEndian.AppendUint16(n, uint16(kernels.ToBF16(f)))
		case kernels.Float8E4M3:
			n = append(n, byte(kernels.ToE4M3(f)))
		default:
			n = append(n, byte(kernels.ToE5M2(f)))
		}
	}
	return n
}

// Reduce is the reference: it returns what package kernels makes of the ranks' elements, in rank order, with small
// floats computed in float32 and rounded once. factor has each rank's factor, for PreMulSum.
func Reduce(dt kernels.DataType, op kernels.Reduction, in [][]byte, factor []float64) []byte {
	var sum []byte
	computed, small := dt, false
	for r, b := range in {
		if op == kernels.PreMulSum {
			scaled := make([]byte, len(b))
			kernels.Scale(scaled, b, dt, factor[r])
			b = scaled
		}
		b, small = wide(dt, b)
		if small {
			computed = kernels.Float32
		}
		if r == 0 {
			sum = slices.Clone(b)
			continue
		}
		kernels.ReducerOf(computed, op)(sum, sum, b)
	}
	if op == kernels.Avg {
		kernels.Divide(sum, computed, len(in))
	}
	if small {
		return narrow(dt, sum)
	}
	return sum
}
