package kernels

import (
	"math"
	"sync"
	"unsafe"
)

// kernel sets dst[i] to a[i] op b[i] for n bytes with vector instructions. dst may be exactly a or b.
type kernel func(dst, a, b *byte, n int)

// block is how many bytes a kernel gets at once. The scheduler can't interrupt assembly, and a garbage collection waits
// for it: 256 KiB take some tens of microseconds even from memory.
const block = 256 << 10

// vectorReducers is made once, since its closures would otherwise be allocated at each look-up.
var vectorReducers = sync.OnceValue(func() *[numSIMD][numDataTypes][Min + 1]Reducer {
	t := new([numSIMD][numDataTypes][Min + 1]Reducer)
	for dt := range avx2 {
		for op := range avx2[dt] {
			if k := avx2[dt][op]; k != nil {
				t[AVX2][dt][op] = inVectors(k, reference[dt][op])
			}
			if k := avx512[dt][op]; k != nil {
				t[AVX512][dt][op] = masked(k)
			}
		}
	}
	return t
})

// vectorReducer returns the best Reducer made of vector instructions up to level, nil if there is none.
func vectorReducer(level SIMD, dt DataType, op Reduction) Reducer {
	t := vectorReducers()
	for ; level > NoSIMD; level-- {
		if r := t[level][dt][op]; r != nil {
			return r
		}
	}
	return nil
}

// inVectors passes whole vectors of 32 bytes to k, and the remainder to rest.
func inVectors(k kernel, rest Reducer) Reducer {
	return func(dst, a, b []byte) {
		a, b = a[:len(dst)], b[:len(dst)]
		whole := len(dst) &^ 31
		inBlocks(k, dst[:whole], a, b)
		if whole < len(dst) {
			rest(dst[whole:], a[whole:], b[whole:])
		}
	}
}

// masked passes everything to k, which masks an incomplete vector.
func masked(k kernel) Reducer {
	return func(dst, a, b []byte) { inBlocks(k, dst, a[:len(dst)], b[:len(dst)]) }
}

func inBlocks(k kernel, dst, a, b []byte) {
	d, x, y := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(a)),
		unsafe.Pointer(unsafe.SliceData(b))
	for done := 0; done < len(dst); done += block {
		k((*byte)(unsafe.Add(d, done)), (*byte)(unsafe.Add(x, done)), (*byte)(unsafe.Add(y, done)),
			min(block, len(dst)-done))
	}
}

// scaler multiplies or divides n bytes of elements by a constant, given as the bits of a float64 for Float64 and of a
// float32 for all others. dst may be exactly src.
type scaler func(dst, src *byte, n int, by uint64)

// scaleVectors scales as much of the buffers as vector instructions up to level can, and returns how many bytes it
// scaled.
func scaleVectors(level SIMD, how scaling, dst, src []byte, dt DataType, by float64) (done int) {
	var scale scaler
	whole := len(dst)
	switch {
	case level >= AVX512:
		scale = avx512Scalers[dt][how]
	case level == AVX2:
		scale = avx2Scalers[dt][how]
		whole &^= 31
	}
	if scale == nil {
		return 0
	}
	bits := uint64(math.Float32bits(float32(by)))
	switch {
	case dt == Float64:
		bits = math.Float64bits(by)
	case dt == BFloat16 && by != by:
		bits = uint64(ToBF16(float32(by))) << 16 // for the rounding, which a NaN with lower bits would break
	}
	d, s := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
	for ; done < whole; done += min(block, whole-done) {
		scale((*byte)(unsafe.Add(d, done)), (*byte)(unsafe.Add(s, done)), min(block, whole-done), bits)
	}
	return done
}
