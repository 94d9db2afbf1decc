package node_test

import (
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// NCCL_PXN_DISABLE on one rank switches PXN off for all ranks, as other ranks would have to send for it.
func TestPXNDisable(t *testing.T) {
	for _, c := range []struct {
		disable     string // on rank 2
		want        tape.PXN
		connections int // of each rank
	}{
		{"", tape.PXNOn, 1},
		{"0", tape.PXNOn, 1},
		{"1", tape.PXNDisabled, 2},
	} {
		t.Run(c.disable, func(t *testing.T) {
			var ranks errgroup.Group
			comms := make([]*ccl.Comm, 4)
			var id ccl.UniqueID
			for rank, host := range []string{"a", "a", "b", "b"} {
				vars := map[string]string{"CARILLON_HOSTID": host}
				if rank == 2 {
					vars["NCCL_PXN_DISABLE"] = c.disable
				}
				rt := start(t, environ(vars)).Runtime()
				if rank == 0 {
					made, err := rt.NewUniqueID()
					if err != nil {
						t.Fatal(err)
					}
					id = made
				}
				ranks.Go(func() (err error) {
					comms[rank], err = rt.InitRank(t.Context(), id, 4, rank)
					return err
				})
			}
			if err := ranks.Wait(); err != nil {
				t.Fatal(err)
			}
			for rank, comm := range comms {
				if got := comm.Topology(); got.PXN != c.want || got.Connections != c.connections {
					t.Errorf("rank %d: PXN is %d with %d connections, want %d with %d", rank, got.PXN, got.Connections,
						c.want, c.connections)
				}
				if err := comm.Abort(nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
