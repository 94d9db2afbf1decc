//go:build linux && cgo

package cuda_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestOverdue checks that an operation that took the GPU long, with many behind it, stays on the tape after its
// communicator has ended: the rank that it waited for, and its end.
func TestOverdue(t *testing.T) {
	for want, end := range map[lifecycle.Code]func(t *testing.T, all []rank, release func() error){
		lifecycle.CodeOK: func(t *testing.T, all []rank, release func() error) {
			t.Helper()
			must(t, release())
			each(t, all, func(r *rank) error { return r.Destroy(t.Context()) })
		},
		lifecycle.CodeAborted: func(t *testing.T, all []rank, release func() error) {
			t.Helper()
			must(t, errors.Join(all[0].Abort(nil), all[1].Abort(nil), release()))
		},
	} {
		t.Run(want.String(), func(t *testing.T) {
			all := ranks(t, 2)
			goes := memory(t, &all[1], 1)
			must(t, all[1].stream.WaitValue(goes.Pointer(), 1))
			for r := range all {
				b := memory(t, &all[r], 8)
				for range 100 {
					must(t, ccl.AllReduceOn(t.Context(), all[r].Comm, all[r].stream, b, b, ccl.Sum))
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			f, err := tape.Follow(ctx, all[0].tape.Path(), time.Millisecond)
			must(t, err)
			defer f.Close()
			next := func(is func(o *tape.OpRecord) bool) *tape.OpRecord { // next record of rank 0's first operation
				for {
					ev, err := f.Next(ctx)
					must(t, err)
					if !ev.IsLife && ev.Comm.Rank == 0 && ev.Op.Seq == 1 && is(&ev.Op) {
						return &ev.Op
					}
				}
			}
			next(func(o *tape.OpRecord) bool { return o.Stage == tape.StageWait && o.Wait == 1 })
			end(t, all, func() error {
				return all[1].context.CopyToDevice(goes.Pointer(), kernels.Bytes([]int32{1}))
			})
			if o := next(func(o *tape.OpRecord) bool { return o.Stage == tape.StageEnd }); o.Code != want {
				t.Errorf("it ended with %v, want %v", o.Code, want)
			}
		})
	}
}
