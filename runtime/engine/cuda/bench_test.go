//go:build linux && cgo

package cuda_test

import (
	"sync"
	"testing"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
)

// BenchmarkAllReduceOn measures a call by each of two ranks, on the host, including the driver's time to launch a
// kernel. It includes the GPU's work if that is slower than the calls: with a fake driver, always.
func BenchmarkAllReduceOn(b *testing.B) {
	all := ranks(b, 2)
	buffers := make([]cuda.Buffer[float32], len(all))
	for r := range all {
		var err error
		buffers[r], err = cuda.Alloc[float32](all[r].context, 2)
		must(b, err)
		must(b, ccl.AllReduceOn(b.Context(), all[r].Comm, all[r].stream, buffers[r], buffers[r], ccl.Sum))
	}
	b.ReportAllocs()
	b.ResetTimer()
	var group sync.WaitGroup
	for r := range all {
		group.Go(func() {
			for range b.N {
				err := ccl.AllReduceOn(b.Context(), all[r].Comm, all[r].stream, buffers[r], buffers[r], ccl.Sum)
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.StopTimer()
	for r := range all {
		must(b, all[r].Wait(b.Context()))
	}
}
