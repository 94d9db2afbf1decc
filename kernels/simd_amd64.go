package kernels

import (
	"sync"
	"unsafe"
)

// kernel sets dst[i] to a[i] op b[i] for n bytes with vector instructions. dst may be exactly a or b.
type kernel func(dst, a, b *byte, n int)

// block is how many bytes a kernel gets at once. The scheduler cannot interrupt assembly, and a garbage collection
// waits for it: 256 KiB are some tens of microseconds even from memory.
const block = 256 << 10

// vectorReducers is made once, of closures that would otherwise be allocated at each look-up.
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

// inVectors hands what fills vectors of 32 bytes to k, and what is left over to rest.
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

// masked hands everything to k, which masks what does not fill a vector.
func masked(k kernel) Reducer {
	return func(dst, a, b []byte) { inBlocks(k, dst, a[:len(dst)], b[:len(dst)]) }
}

func inBlocks(k kernel, dst, a, b []byte) {
	d, x, y := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b))
	for done := 0; done < len(dst); done += block {
		k((*byte)(unsafe.Add(d, done)), (*byte)(unsafe.Add(x, done)), (*byte)(unsafe.Add(y, done)), min(block, len(dst)-done))
	}
}
