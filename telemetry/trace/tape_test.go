package trace_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// TestRealTape writes a life onto a real tape and projects it twice: live, as the process's own follower sees it, and
// afterwards from the file, as a post-mortem does. Both give the same spans.
func TestRealTape(t *testing.T) {
	w, err := tape.Create(tape.Config{Dir: t.TempDir(), Job: "test"})
	if err != nil {
		t.Fatal(err)
	}
	follower, err := tape.Follow(t.Context(), w.Path(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Close()
	live := newProjector(t, func(c *trace.Config) {
		c.Wall = func(mono int64) time.Time { return follower.Header().Wall(mono) }
	})
	followed := make(chan error, 1)
	go func() {
		events := make([]tape.Event, 16)
		for {
			n, err := follower.Read(context.Background(), events)
			for i := range events[:n] {
				live.observe(&events[i])
			}
			if err != nil {
				followed <- err
				return
			}
		}
	}()

	writeLife(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-followed; !errors.Is(err, tape.ErrClosed) {
		t.Fatalf("following ended with %v", err)
	}

	reader, err := tape.Open(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	dead := newProjector(t, func(c *trace.Config) {
		c.Wall = func(mono int64) time.Time { return reader.Header().Wall(mono) }
	})
	for ev, err := range reader.Events() {
		if err != nil {
			t.Fatal(err)
		}
		dead.observe(&ev)
	}

	got := outline(live)
	want := []string{
		"ccl.comm.init (started) rank 2, 0 links: ",
		"ccl.comm.init.rendezvous rank 2, 0 links: ",
		"ccl.comm.init rank 2, 1 links: ",
		"ccl.all_reduce rank 2, 1 links: timeout: was waiting for rank 3",
		"ccl.comm.destroy (started) rank 2, 0 links: ",
		"ccl.comm.destroy rank 2, 1 links: ",
		"ccl.comm.destroy rank 2, 2 links: destroyed twice",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("live (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(describe(live.spans()), describe(dead.spans())); diff != "" {
		t.Errorf("the file tells another story than the follower did (-live +file):\n%s", diff)
	}
}

// writeLife is a communicator's life with a failed operation and a second destroy.
func writeLife(w *tape.Writer) {
	c := w.Comm(tape.CommInfo{ID: lifecycle.CommID{4}, Name: "world", Rank: 2, Size: 4})
	life := func(r tape.LifeRecord) {
		r.Peer = -1
		c.Life(r)
	}
	start := tape.Now()
	life(tape.LifeRecord{
		Act: tape.ActInit, Call: lifecycle.CallInitRank, Stage: tape.StageStart, Start: start,
		Site: lifecycle.Caller(""), Caller: tape.SpanContext{TraceID: [16]byte{1}, SpanID: [8]byte{2}, Flags: 1},
	})
	life(tape.LifeRecord{Act: tape.ActInit, Stage: tape.StagePhase, Phase: tape.PhaseRendezvous, Start: start})
	c.Describe(tape.CommInfo{ID: lifecycle.CommID{4}, Name: "world", Rank: 2, Size: 4, Nodes: 2, Engine: "host"})
	life(tape.LifeRecord{
		Act: tape.ActInit, Call: lifecycle.CallInitRank, Stage: tape.StageEnd, Start: start,
		State: lifecycle.StateReady,
	})

	seq := c.Start(0, tape.Signature{Call: lifecycle.CallAllReduce, DataType: 7, Peer: -1, Bytes: 64}, 1)
	c.Wait(3)
	c.End(seq, lifecycle.CodeTimeout)

	first := lifecycle.Caller("")
	start = tape.Now()
	life(tape.LifeRecord{
		Act: tape.ActDestroy, Call: lifecycle.CallDestroy, Stage: tape.StageStart, Start: start,
		Site: first,
	})
	life(tape.LifeRecord{
		Act: tape.ActDestroy, Call: lifecycle.CallDestroy, Stage: tape.StageEnd, Start: start,
		State: lifecycle.StateDestroyed,
	})
	life(tape.LifeRecord{
		Act: tape.ActDestroy, Call: lifecycle.CallDestroy, Stage: tape.StageMisuse, Code: lifecycle.CodeDestroyed,
		State: lifecycle.StateDestroyed, Text: "destroyed twice", Site: lifecycle.Caller(""), First: first,
	})
	c.Close()
}

func outline(p *projector) []string {
	var lines []string
	for _, s := range p.spans() {
		rank := "?"
		for _, kv := range s.Attributes {
			if kv.Key == "ccl.rank" {
				rank = kv.Value.String()
			}
		}
		lines = append(lines, fmt.Sprintf("%s rank %s, %d links: %s", s.Name, rank, len(s.Links), s.Status.Description))
	}
	return lines
}
