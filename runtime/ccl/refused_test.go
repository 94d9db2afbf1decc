package ccl

import (
	"errors"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Refusals of a rank's proxy are recorded on the tape once for each call, with the call's number.
func TestRefusalsAreNoted(t *testing.T) {
	w, err := tape.Create(tape.Config{Dir: t.TempDir(), Job: "test"})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := New(Config{Engine: host.Kind(), Tape: w})
	if err != nil {
		t.Fatal(err)
	}
	c, err := rt.World(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refused := c.refusals()
	for seq := range uint64(2) {
		c.comm.Begin(lifecycle.CallAllReduce, 6+seq)
		for range 3 {
			refused(errors.New("the token does not fit"))
		}
		c.comm.End()
	}
	if err := errors.Join(c.Destroy(t.Context()), rt.Close(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := tape.Open(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	next := uint64(6)
	for ev, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		l := &ev.Life
		if !ev.IsLife || l.Stage != tape.StageMisuse {
			continue
		}
		if l.Call != lifecycle.CallAllReduce || l.Seq != next || l.Code != lifecycle.CodeInternal ||
			!strings.Contains(l.Text, "the token does not fit") {
			t.Errorf("the tape has %+v, want it of all-reduce %d", l, next)
		}
		next++
	}
	if next != 8 {
		t.Errorf("the tape has %d refusals, want 2", next-6)
	}
}
