//go:build linux && cgo

package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/kernels/kernelstest"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// TestTypes compares all-reduces of every type with every reduction, on each path that they take, with package kernels,
// bit by bit. Without a GPU, each type is tested once, as package kernels/cuda tests the kernels.
func TestTypes(t *testing.T) {
	const ranks = 2
	sizes := []int{8, 16, 616, 4800, 8000, 24000} // LL and LL128, in one shot and in two; direct; pushed
	factor := []float64{-1.75, 0.5}
	all, openers := opened(t, ranks, options)
	rng := rand.New(rand.NewPCG(21, 22))
	var seq uint64
	for n, dt := range kernelstest.DataTypes {
		for k, op := range kernelstest.Reductions {
			for i, size := range sizes {
				if os.Getenv(realDriver) == "" && (k != n%len(kernelstest.Reductions) || i != n%len(sizes)) {
					continue
				}
				in := make([][]byte, ranks)
				for r := range in {
					in[r] = kernelstest.Random(rng, dt, size/dt.Size())
				}
				want := kernelstest.Reduce(dt, op, in, factor)
				seq++
				each(t, all, func(r *rank) error {
					got, err := reduced(r, openers[r.Rank()].Device, seq, engine.Op{
						Call: lifecycle.CallAllReduce, Count: size / dt.Size(), DataType: dt, Reduction: op, Peer: -1,
						Scale: factor[r.Rank()], Scaled: op == kernels.PreMulSum, Stream: r.stream,
					}, in[r.Rank()])
					if err == nil && !bytes.Equal(got, want) {
						t.Errorf("rank %d, %d bytes: %v of %v %s", r.Rank(), size, op, dt, differ(dt, got, want, in))
					}
					return err
				})
			}
		}
	}
	each(t, all, func(r *rank) error { return r.Destroy(t.Context()) })
}

// differ describes the first wrong element, and says how many there are.
func differ(dt kernels.DataType, got, want []byte, in [][]byte) string {
	var first string
	count := 0
	for i := 0; i < len(want); i += dt.Size() {
		element := func(b []byte) []byte { return b[i : i+dt.Size()] }
		if bytes.Equal(element(got), element(want)) {
			continue
		}
		if count++; count == 1 {
			first = fmt.Sprintf("is %x, want %x, of %x and %x",
				element(got), element(want), element(in[0]), element(in[1]))
		}
	}
	return fmt.Sprintf("%s (%d of %d elements differ)", first, count, len(want)/dt.Size())
}

// reduced returns the result of an operation on a rank's data.
func reduced(r *rank, d engine.Device, seq uint64, op engine.Op, in []byte) ([]byte, error) {
	send, err := buffer(r, in)
	if err != nil {
		return nil, err
	}
	recv, err := buffer(r, make([]byte, len(in)))
	if err != nil {
		return nil, err
	}
	op.Send, op.Recv = send.Addresses(), recv.Addresses()
	if _, err := d.Enqueue(op.Call, seq, []engine.Op{op}); err != nil {
		return nil, err
	}
	got, err := read(r, recv)
	return got, errors.Join(err, r.context.Free(send.Pointer()), r.context.Free(recv.Pointer()))
}
