package host_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// While a rank waits, the tape says for which rank and in which phase; when it continues, it no longer does.
func TestWaitIsOnTheTape(t *testing.T) {
	for name, how := range transports() {
		t.Run(name, func(t *testing.T) {
			w, err := tape.Create(tape.Config{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = w.Close() }()
			reader, err := tape.Open(w.Path())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = reader.Close() }()

			plain := newCluster(t, 3, how)
			tw := w.Comm(tape.CommInfo{Name: "test", Size: 3})
			defer tw.Close()
			watched := host.New(engine.NewComm(lifecycle.CommID{}, "", plain.links[0], tw))
			plain.engines[0] = watched

			await := func(phase tape.Phase, peer int32) {
				for {
					if s := reader.Slots(); len(s) == 1 && s[0].Phase == phase && s[0].Wait == peer {
						return
					}
					runtime.Gosched()
				}
			}
			data := make([]byte, 1<<20)
			for r, err := range plain.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
				// Rank 2 only arrives when the tape says that rank 0 waits for it.
				switch rank {
				case 0:
					n := tw.Start(seq, tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1}, 0)
					defer tw.End(n, lifecycle.CodeOK)
				case 2:
					await(tape.PhaseAgree, 2)
				}
				return run(ctx, e, seq, engine.Op{
					Call: lifecycle.CallAllReduce, Count: len(data), DataType: kernels.Uint8, Peer: -1,
					Send: data, Recv: make([]byte, len(data)),
				})
			}) {
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
			if s := reader.Slots(); s[0].Wait != -1 {
				t.Errorf("after the operation the tape says that rank 0 waits for %d", s[0].Wait)
			}
			var waits int
			for ev, err := range reader.Events() {
				if err != nil {
					t.Fatal(err)
				}
				if !ev.IsLife && ev.Op.Stage == tape.StageWait && ev.Op.Wait == 2 {
					waits++
				}
			}
			if waits == 0 {
				t.Error("no record of the wait for rank 2 is in the ring")
			}
		})
	}
}
