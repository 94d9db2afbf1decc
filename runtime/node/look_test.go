package node

import (
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// BenchmarkLook is one look for stalls: reading the in-flight table, and checking all its communicators. All have an
// operation in flight, none of which is slow.
func BenchmarkLook(b *testing.B) {
	for name, live := range map[string]int{"communicators=1": 1, "communicators=10000": 10_000} {
		b.Run(name, func(b *testing.B) {
			w, err := tape.Create(tape.Config{Dir: b.TempDir(), Slots: 16_384})
			if err != nil {
				b.Fatal(err)
			}
			var first *tape.CommWriter
			for i := range live {
				c := w.Comm(tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Engine: "host", Rank: i, Size: live})
				if first == nil {
					first = c
				}
				c.From(first) // all are of one rank
				c.Start(0, tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1024}, 1)
			}
			f, err := tape.Follow(b.Context(), w.Path(), 0)
			if err != nil {
				b.Fatal(err)
			}
			p := model.New(model.Limits{Slow: model.MaxLimit, Floor: model.MaxLimit})
			t := &Telemetry{tape: w, follower: f, process: p, stalls: &stalls{watch: stall.New(p)}}
			b.ReportAllocs()
			for b.Loop() {
				t.look(time.Hour)
			}
			if len(t.stalls.slots) != live {
				b.Errorf("%d communicators were looked at", len(t.stalls.slots))
			}
			if err := f.Close(); err != nil {
				b.Error(err)
			}
		})
	}
}

// TestDelayBefore: the time that threads waited for a processor before the first look doesn't count in the first pause.
func TestDelayBefore(t *testing.T) {
	before := process.RunDelay()
	s := newStalls(&settings{Config: Config{StallThreshold: time.Second}}, model.New(model.Limits{}))
	if s.delay < before {
		t.Errorf("of the %v that threads had waited, it leaves %v out", before, s.delay)
	}
}
