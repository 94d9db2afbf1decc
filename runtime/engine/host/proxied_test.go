package host_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// The tape has what an operation sent to a rank of another node, and in which steps: for a sampled operation when it
// ends, for a slow one also while it lasts, and for no other.
func TestProxiedIsOnTheTape(t *testing.T) {
	for name, test := range map[string]struct {
		cfg              tape.Config
		inProgress, done int // records of what was sent
	}{
		"sampled": {cfg: tape.Config{SampleEvery: 1}, done: 1},
		"slow":    {cfg: tape.Config{Slow: 1}, inProgress: 1, done: 1},
		"neither": {cfg: tape.Config{Slow: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			test.cfg.Dir = t.TempDir()
			w, err := tape.Create(test.cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = w.Close() }()
			reader, err := tape.Open(w.Path())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = reader.Close() }()
			plain := newCluster(t, 2, transports()["tcp"])
			tw := w.Comm(tape.CommInfo{Name: "test", Size: 2})
			defer tw.Close()
			plain.engines[0] = host.New(engine.NewComm(lifecycle.CommID{}, "", plain.links[0], tw))

			const size = 8 << 20 // more than fits before rank 1 calls
			for r, err := range plain.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
				if rank == 0 {
					n := tw.Start(seq, tape.Signature{Call: lifecycle.CallBroadcast, Peer: 0}, 0)
					defer tw.End(n, lifecycle.CodeOK)
				}
				for rank == 1 { // until the tape says that rank 0 waits for it
					if s := reader.Slots(); len(s) == 1 && s[0].Wait == 1 {
						break
					}
					runtime.Gosched()
				}
				data := make([]byte, size)
				return run(ctx, e, seq, engine.Op{
					Call: lifecycle.CallBroadcast, Count: size, DataType: kernels.Uint8, Peer: 0,
					Send: data, Recv: data,
				})
			}) {
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
			checkProxied(t, reader, size, test.inProgress, test.done)
		})
	}
}

// checkProxied checks the records of what rank 0 sent to rank 1: at least size bytes.
func checkProxied(t *testing.T, reader *tape.Reader, size uint64, inProgress, done int) {
	t.Helper()
	// Whether the sender ever slept after its receiver had arrived depends on the load of the machine.
	waits := []tape.Phase{tape.PhaseNone, tape.PhaseCredit, tape.PhaseNetwork, tape.PhasePool}
	var all, steps []tape.Proxied
	for ev, err := range reader.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if ev.IsLife || !ev.Op.IsProxied() {
			continue
		}
		s := ev.Op.Proxied()
		if s.Peer != 1 || s.Carrier != 0 || s.Bytes == 0 || s.Start == 0 || s.End < s.Start {
			t.Errorf("the tape has %+v", s)
		}
		switch {
		case s.Step:
			steps = append(steps, s)
		case s.Code == lifecycle.CodeInProgress:
			if inProgress--; s.Bytes >= size {
				t.Errorf("before the receiver has called, %d bytes were taken", s.Bytes)
			}
		default:
			if done--; s.Bytes < size || s.Code != lifecycle.CodeOK || !slices.Contains(waits, s.Waited) {
				t.Errorf("at the end it is %+v", s)
			}
			all = append(all, s)
		}
	}
	if inProgress != 0 || done != 0 {
		t.Errorf("missing are %d records while it lasted, and %d at its end", inProgress, done)
	}
	if len(all) > 0 && len(steps) == 0 {
		t.Error("no step is there")
	}
	for _, s := range steps {
		if s.Start < all[0].Start || s.End > all[0].End {
			t.Errorf("step %+v is not part of %+v", s, all[0])
		}
	}
}
