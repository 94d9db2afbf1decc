// Package ones makes collectives whose results every rank knows in advance.
package ones

import (
	"context"
	"fmt"

	"github.com/carillon-rt/carillon/runtime/ccl"
)

// AllReduce sums size ones of each rank, and checks the sum. It blocks as ccl.AllReduce does; its error is that of
// ccl.AllReduce, or says that the sum is wrong.
func AllReduce(ctx context.Context, comm *ccl.Comm, size int) error {
	data := make([]float32, size)
	for i := range data {
		data[i] = 1
	}
	if err := ccl.AllReduce(ctx, comm, data, data, ccl.Sum); err != nil {
		return err
	}
	for i, got := range data {
		if got != float32(comm.Size()) {
			return fmt.Errorf("element %d of %d is %v, want %d", i, size, got, comm.Size())
		}
	}
	return nil
}
