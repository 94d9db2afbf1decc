package trace_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

func TestMain(m *testing.M) {
	if os.Getenv(consoleEnv) != "" {
		os.Exit(console())
	}
	goleak.VerifyTestMain(m)
}

// epoch is the time of day at which the tests' tapes start; a tape's time t is t nanoseconds later.
var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func wall(mono int64) time.Time { return epoch.Add(time.Duration(mono)) }

const ms = int64(time.Millisecond)

// noExport clears the variables that would make the tests export.
func noExport(t *testing.T) {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
}

// fed is a Projector with its model.
type fed struct {
	*trace.Projector
	model *model.Process
}

// observe takes an event, as the model's owner does.
func (f *fed) observe(ev *tape.Event) model.Step {
	s := f.model.Apply(ev)
	f.Observe(&s)
	return s
}

// projector is a Projector with the spans that it made.
type projector struct {
	fed
	t        *testing.T
	exporter *tracetest.InMemoryExporter
	closed   bool
}

func newProjector(t *testing.T, adjust func(*trace.Config)) *projector {
	t.Helper()
	noExport(t)
	exporter := tracetest.NewInMemoryExporter()
	cfg := trace.Config{
		Job: "job1", Host: "h1", PID: 42, Rank: 1, Version: "v1",
		Process: model.New(model.Limits{}), Wall: wall,
		AlgorithmName: func(a uint8) string { return fmt.Sprintf("algorithm%d", a) },
		Processors:    []sdktrace.SpanProcessor{sdktrace.NewSimpleSpanProcessor(exporter)},
	}
	if adjust != nil {
		adjust(&cfg)
	}
	p, err := trace.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	pr := &projector{fed: fed{p, cfg.Process}, t: t, exporter: exporter}
	t.Cleanup(pr.close)
	return pr
}

func (p *projector) close() {
	if p.closed {
		return
	}
	p.closed = true
	if err := p.Close(context.Background()); err != nil {
		p.t.Errorf("Close: %v", err)
	}
}

func (p *projector) life(comm tape.CommInfo, r tape.LifeRecord) {
	p.observe(&tape.Event{Comm: comm, Slot: 3, Generation: uint32(comm.ID[0]), IsLife: true, Life: r})
}

func (p *projector) op(comm tape.CommInfo, r tape.OpRecord) model.Step {
	return p.observe(&tape.Event{Comm: comm, Slot: 3, Generation: uint32(comm.ID[0]), Op: r})
}

// stall takes a report, whose operation is marked, as stall.Watch does.
func (p *projector) stall(r *stall.Report) {
	if c := p.model.Comm(r.Comm.Generation); c != nil && r.Act == tape.ActNone && r.Stage != stall.Cleared {
		if r.InFlight = c.InFlight(); r.InFlight != nil {
			r.InFlight.Slow, r.InFlight.Stalls = true, r.Count
		}
	}
	p.ObserveStall(r)
}

// spans closes the projector and returns what it made.
func (p *projector) spans() tracetest.SpanStubs {
	p.close()
	return p.exporter.GetSpans()
}

// recorded compares text with testdata/name.
func recorded(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	datadriven.RunTest(t, path, func(*testing.T, *datadriven.TestData) string { return text })
}

// describe formats spans for people, a few lines for each: place and time, problem, attributes, links.
func describe(spans tracetest.SpanStubs) string {
	names := map[string]string{}
	for _, s := range spans {
		names[s.SpanContext.SpanID().String()] = s.Name
	}
	ref := func(id string) string {
		if name, ok := names[id]; ok {
			return id + " (" + name + ")"
		}
		return id
	}
	var b strings.Builder
	for _, s := range spans {
		fmt.Fprintf(&b, "%s\n  trace %s span %s",
			s.Name, short(s.SpanContext.TraceID().String()), s.SpanContext.SpanID())
		if s.Parent.SpanID().IsValid() {
			fmt.Fprintf(&b, " parent %s", ref(s.Parent.SpanID().String()))
			if s.Parent.IsRemote() {
				b.WriteString(" remote")
			}
		}
		fmt.Fprintf(&b, "\n  %v to %v", s.StartTime.Sub(epoch), s.EndTime.Sub(epoch))
		if s.Status.Code != codes.Unset {
			fmt.Fprintf(&b, "  %s %q", s.Status.Code, s.Status.Description)
		}
		for i, kv := range s.Attributes {
			if i%5 == 0 {
				b.WriteString("\n ")
			}
			fmt.Fprintf(&b, " %s=%s", kv.Key, kv.Value.String())
		}
		for _, l := range s.Links {
			fmt.Fprintf(&b, "\n  link %s: trace %s span %s", l.Attributes[0].Value.String(),
				short(l.SpanContext.TraceID().String()), ref(l.SpanContext.SpanID().String()))
		}
		b.WriteString("\n\n")
	}
	return b.String()
}

func short(id string) string { return id[:8] }

var (
	world = tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 1, Size: 4}
	rails = tape.CommInfo{ID: lifecycle.CommID{2}, Parent: lifecycle.CommID{1}, Name: "rails", Rank: 0, Size: 2}
)

func site(line int) lifecycle.Site {
	return lifecycle.Site{
		Func: "main.train", File: "/src/train.go", Line: line, Goroutine: 7,
		Time: wall(int64(line) * ms),
	}
}

// act is the start and the end of an act that goes well.
func (p *projector) act(comm tape.CommInfo, r tape.LifeRecord, from, to int64) {
	r.Stage, r.Time, r.Peer = tape.StageStart, from, -1
	start := r
	start.Child = lifecycle.CommID{} // not known yet
	p.life(comm, start)
	r.Stage, r.Time, r.Start = tape.StageEnd, to, from
	p.life(comm, r)
}

func TestLifeOfACommunicator(t *testing.T) {
	p := newProjector(t, nil)
	init := tape.LifeRecord{Act: tape.ActInit, Call: lifecycle.CallInitRank, Peer: -1, Site: site(10)}

	r := init
	r.Stage, r.Time, r.State = tape.StageStart, 1*ms, lifecycle.StateInitializing
	r.Caller = tape.SpanContext{TraceID: [16]byte{0xca, 0x11}, SpanID: [8]byte{0xe1}, Flags: 1}
	p.life(world, r)
	for i, phase := range []tape.Phase{tape.PhaseRendezvous, tape.PhaseTopology, tape.PhaseConnect} {
		r := init
		r.Stage, r.Phase, r.Time, r.Start = tape.StagePhase, phase, int64(2+i)*ms, 1*ms
		p.life(world, r)
	}
	ready := world
	ready.Nodes, ready.Engine = 2, "host" // known at the end
	r.Stage, r.Time, r.Start, r.State = tape.StageEnd, 9*ms, 1*ms, lifecycle.StateReady
	p.life(ready, r)

	split := tape.LifeRecord{
		Act: tape.ActSplit, Call: lifecycle.CallSplit, Seq: 1, Peer: -1, State: lifecycle.StateReady, Site: site(20),
		Stage: tape.StageStart, Time: 20 * ms, Start: 20 * ms,
	}
	p.life(ready, split)
	split.Stage, split.Phase, split.Text = tape.StagePhase, tape.PhaseQueued, "a group job is completed first"
	p.life(ready, split)
	split.Phase, split.Text, split.Time = tape.PhaseNone, "", 21*ms
	p.life(ready, split)
	split.Stage, split.Child, split.Time = tape.StageEnd, rails.ID, 22*ms
	p.life(ready, split)
	p.act(ready, tape.LifeRecord{
		Act: tape.ActGroup, Call: lifecycle.CallGroupEnd, Seq: 1, State: lifecycle.StateReady,
		Ops: 3, Site: site(30),
	}, 30*ms, 31*ms)
	p.act(rails, tape.LifeRecord{
		Act: tape.ActDestroy, Call: lifecycle.CallDestroy, State: lifecycle.StateDestroyed,
		Site: site(40),
	}, 40*ms, 41*ms)
	p.act(ready, tape.LifeRecord{
		Act: tape.ActFinalize, Call: lifecycle.CallFinalize, State: lifecycle.StateFinalized,
		Site: site(50),
	}, 50*ms, 51*ms)
	p.act(ready, tape.LifeRecord{
		Act: tape.ActDestroy, Call: lifecycle.CallDestroy, State: lifecycle.StateDestroyed,
		Site: site(60),
	}, 60*ms, 61*ms)
	recorded(t, "life.txt", describe(p.spans()))
}

// TestSplitAsItHappens has the child's init begin before its rank is known, and end before the parent's split does; one
// child never gets a rank. The process's other rank, whose child has no rank yet either, makes different spans.
func TestSplitAsItHappens(t *testing.T) {
	var spans tracetest.SpanStubs
	for pid := 1; pid <= 2; pid++ {
		p := newProjector(t, func(c *trace.Config) { c.PID = pid })
		parent := world
		parent.Rank = pid
		child := tape.CommInfo{ID: lifecycle.CommID{7}, Parent: world.ID, Name: "rails", Rank: -1}
		split := tape.LifeRecord{
			Act: tape.ActSplit, Call: lifecycle.CallSplit, Seq: 1, Stage: tape.StageStart,
			Time: 10 * ms, Start: 10 * ms, Peer: -1,
		}
		init := tape.LifeRecord{
			Act: tape.ActInit, Call: lifecycle.CallSplit, Stage: tape.StageStart, Time: 11 * ms,
			Start: 11 * ms, Peer: -1,
		}
		p.life(parent, split)
		p.life(child, init)
		for i, phase := range []tape.Phase{tape.PhaseRendezvous, tape.PhaseTopology, tape.PhaseConnect} {
			init.Stage, init.Phase, init.Time = tape.StagePhase, phase, int64(12+i)*ms
			p.life(child, init)
			if phase == tape.PhaseTopology {
				if pid == 2 {
					break // it dies here
				}
				child.Rank, child.Size = 1, 2
			}
		}
		if pid == 1 {
			init.Stage, init.Phase, init.Time, init.State = tape.StageEnd, tape.PhaseNone, 18*ms, lifecycle.StateReady
			p.life(child, init)
			split.Stage, split.Time, split.Child = tape.StageEnd, 19*ms, child.ID
			p.life(parent, split)
			// It links to its own init.
			p.act(child, tape.LifeRecord{Act: tape.ActDestroy, Call: lifecycle.CallDestroy}, 20*ms, 21*ms)
		}
		spans = append(spans, p.spans()...)
	}
	seen := map[string]string{}
	for _, s := range spans {
		id := s.SpanContext.TraceID().String() + s.SpanContext.SpanID().String()
		if seen[id] != "" {
			t.Errorf("%s has the ids of %s", s.Name, seen[id])
		}
		seen[id] = s.Name
	}
	recorded(t, "split.txt", describe(spans))
}

func TestMistakesAndFailures(t *testing.T) {
	p := newProjector(t, nil)
	p.act(world, tape.LifeRecord{
		Act: tape.ActDestroy, Call: lifecycle.CallDestroy, State: lifecycle.StateDestroyed,
		Site: site(10),
	}, 10*ms, 11*ms)
	// Destroyed a second time, then used, then split: all in the trace of the first destroy.
	for i, r := range []tape.LifeRecord{
		{Act: tape.ActDestroy, Call: lifecycle.CallDestroy, Text: "world was destroyed already"},
		{Act: tape.ActNone, Call: lifecycle.CallAllReduce, Text: "all_reduce on world, which was destroyed"},
		{Act: tape.ActNone, Call: lifecycle.CallAsyncError, Text: "async_error on world, which was destroyed"},
	} {
		r.Stage, r.Time, r.Code, r.State, r.Peer = tape.StageMisuse, int64(20+i)*ms, lifecycle.CodeDestroyed,
			lifecycle.StateDestroyed, -1
		r.Site, r.First, r.Times = site(20+i), site(10), uint32(1)<<i&^1
		p.life(world, r)
	}
	// An argument that was refused: this rank's business alone.
	p.life(rails, tape.LifeRecord{
		Act: tape.ActNone, Call: lifecycle.CallBroadcast, Stage: tape.StageMisuse, Time: 30 * ms,
		Code:  lifecycle.CodeInvalidArgument,
		State: lifecycle.StateReady, Peer: -1, Text: "root 9 is not from 0 to 1", Site: site(30),
	})
	// A mistake of a C program, which has threads, and no lines.
	c := lifecycle.Site{Func: "train+0x1f in job.so+0x2c", File: "/lib/job.so", Goroutine: 4711, Time: wall(31 * ms)}
	p.life(world, tape.LifeRecord{
		Act: tape.ActNone, Call: lifecycle.CallAllReduce, Stage: tape.StageMisuse, Time: 32 * ms,
		Code: lifecycle.CodeInvalidUsage, State: lifecycle.StateReady, Peer: -1,
		Text: "world is in a call of another thread", Site: c, First: c,
	})
	// A proxy refused an operation while an all-reduce ran: below this rank's span of that.
	p.life(rails, tape.LifeRecord{
		Act: tape.ActNone, Call: lifecycle.CallAllReduce, Stage: tape.StageMisuse, Time: 35 * ms, Seq: 6,
		Code: lifecycle.CodeInternal, State: lifecycle.StateReady, Peer: -1, Text: "the operation's token does not fit",
	})
	// A rank dies in an all-reduce: the operation fails, and the communicator with it.
	for i, rank := range []int32{3, -1, 1} {
		p.op(rails, tape.OpRecord{
			Time: int64(41+i) * ms, Start: 40 * ms, Stage: tape.StageWait, Seq: 7, Wait: rank,
			Signature: tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1},
		})
	}
	p.op(rails, tape.OpRecord{
		Time: 45 * ms, Stage: tape.StageEnd, Seq: 7, Start: 40 * ms, Wait: -1, Phase: tape.PhaseTransfer, Algorithm: 2,
		Code:      lifecycle.CodeRankDead,
		Signature: tape.Signature{Call: lifecycle.CallAllReduce, DataType: 7, Reduction: 0, Peer: -1, Bytes: 4096},
	})
	p.life(rails, tape.LifeRecord{
		Act: tape.ActNone, Call: lifecycle.CallAllReduce, Stage: tape.StageEnd, Time: 46 * ms, Seq: 7,
		Code: lifecycle.CodeRankDead, State: lifecycle.StateFailed, Peer: 1, Text: "all_reduce: rank 1 died",
	})
	// An init that fails, in its first phase.
	late := tape.CommInfo{ID: lifecycle.CommID{3}, Name: "late", Rank: 0, Size: 2}
	p.life(late, tape.LifeRecord{
		Act: tape.ActInit, Call: lifecycle.CallInitRank, Stage: tape.StageStart,
		Time: 50 * ms, Peer: -1,
	})
	p.life(late, tape.LifeRecord{
		Act: tape.ActInit, Stage: tape.StagePhase, Phase: tape.PhaseRendezvous,
		Time: 50 * ms, Start: 50 * ms, Peer: -1,
	})
	p.life(late, tape.LifeRecord{
		Act: tape.ActInit, Call: lifecycle.CallInitRank, Stage: tape.StageEnd, Time: 59 * ms, Start: 50 * ms,
		Code: lifecycle.CodeNotJoined, State: lifecycle.StateFailed, Peer: 1, Text: "rank 1 did not join",
	})
	p.life(late, tape.LifeRecord{
		Act: tape.ActLeak, Call: lifecycle.CallInitRank, Stage: tape.StageMisuse, Time: 70 * ms,
		Code:  lifecycle.CodeLeaked,
		State: lifecycle.StateFailed, Peer: -1, Text: "late was never destroyed", Site: site(50),
	})
	recorded(t, "mistakes.txt", describe(p.spans()))
}

func TestWhatDidNotEnd(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.Now = func() int64 { return 100 * ms } })
	p.life(world, tape.LifeRecord{
		Act: tape.ActInit, Call: lifecycle.CallInitRank, Stage: tape.StageStart,
		Time: 10 * ms, Peer: -1, Site: site(10),
	})
	p.life(world, tape.LifeRecord{
		Act: tape.ActInit, Stage: tape.StagePhase, Phase: tape.PhaseRendezvous,
		Time: 11 * ms, Start: 10 * ms, Peer: -1,
	})
	// A split that is aborted ends after the abort that ended it; another never ends.
	split := tape.LifeRecord{
		Act: tape.ActSplit, Call: lifecycle.CallSplit, Seq: 2, Stage: tape.StageStart,
		Time: 20 * ms, Peer: -1,
	}
	p.life(rails, split)
	split.Seq, split.Time = 3, 21*ms
	p.life(rails, split)
	p.act(rails, tape.LifeRecord{Act: tape.ActAbort, Call: lifecycle.CallAbort, State: lifecycle.StateAborted},
		30*ms, 31*ms)
	p.life(rails, tape.LifeRecord{
		Act: tape.ActSplit, Call: lifecycle.CallSplit, Seq: 2, Stage: tape.StageEnd, Time: 32 * ms, Start: 20 * ms,
		Peer: -1, Code: lifecycle.CodeAborted, State: lifecycle.StateAborted, Text: "aborted",
	})
	recorded(t, "unfinished.txt", describe(p.spans()))
}

// TestStartThatWasMissed: the life ring was overwritten before the reader reached the start of an act.
func TestStartThatWasMissed(t *testing.T) {
	p := newProjector(t, nil)
	p.life(world, tape.LifeRecord{
		Act: tape.ActInit, Stage: tape.StagePhase, Phase: tape.PhaseConnect, Time: 15 * ms,
		Start: 10 * ms, Peer: -1,
	})
	p.life(world, tape.LifeRecord{
		Act: tape.ActInit, Stage: tape.StageEnd, Time: 20 * ms, Start: 10 * ms,
		Peer: -1, State: lifecycle.StateReady,
	})
	p.life(rails, tape.LifeRecord{Act: tape.ActDestroy, Stage: tape.StageEnd, Time: 40 * ms, Start: 30 * ms, Peer: -1})
	var got []string
	for _, s := range p.spans() {
		got = append(got, fmt.Sprintf("%s %v", s.Name, s.EndTime.Sub(s.StartTime)))
	}
	want := []string{"ccl.comm.init.connect 5ms", "ccl.comm.init 10ms", "ccl.comm.destroy 10ms"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestRanksShareATrace projects four ranks, each in its own process, and joins their spans as a collector does.
func TestRanksShareATrace(t *testing.T) {
	const size = 4
	var all tracetest.SpanStubs
	for rank := range size {
		p := newProjector(t, nil)
		comm := tape.CommInfo{ID: lifecycle.CommID{9}, Name: "world", Rank: rank, Size: size}
		p.act(comm, tape.LifeRecord{Act: tape.ActInit, Call: lifecycle.CallInitRank, State: lifecycle.StateReady},
			int64(rank+1)*ms, 9*ms)
		all = append(all, p.spans()...)
	}
	trace := all[0].SpanContext.TraceID()
	seen := map[string]bool{}
	roots := 0
	for _, s := range all {
		if s.SpanContext.TraceID() != trace {
			t.Errorf("%s is in trace %s, not in %s", s.Name, s.SpanContext.TraceID(), trace)
		}
		if !s.SpanContext.IsSampled() {
			t.Errorf("%s is not sampled", s.Name)
		}
		if id := s.SpanContext.SpanID().String(); seen[id] {
			t.Errorf("span id %s is there twice", id)
		} else {
			seen[id] = true
		}
		if !s.Parent.SpanID().IsValid() {
			roots++
		}
	}
	if roots != 1 {
		t.Errorf("%d roots, want rank 0's alone", roots)
	}
	for _, s := range all {
		if s.Parent.SpanID().IsValid() && !seen[s.Parent.SpanID().String()] {
			t.Errorf("%s has a parent %s that nobody made", s.Name, s.Parent.SpanID())
		}
	}
}

// TestIdsNeverChange fixes the hashes: a tape that is read again next year must give the same ids.
func TestIdsNeverChange(t *testing.T) {
	comm := lifecycle.CommID{0xab, 0xcd}
	init := trace.ActTraceID(comm, tape.ActInit, 0)
	got := []string{
		init.String(),
		trace.ActTraceID(comm, tape.ActSplit, 3).String(),
		trace.OpTraceID(comm, 2, tape.Signature{Call: lifecycle.CallAllReduce}, 5).String(),
		trace.OpTraceID(comm, 2, tape.Signature{Call: lifecycle.CallSend, Peer: 1}, 5).String(),
		trace.OpTraceID(comm, 2, tape.Signature{Call: lifecycle.CallSendRecv, Peer: -1}, 5).String(),
		trace.SpanID(init, 0).String(),
		trace.SpanID(init, 3).String(),
	}
	recorded(t, "ids.txt", strings.Join(got, "\n")+"\n")
	slices.Sort(got)
	if len(slices.Compact(got)) != 7 {
		t.Error("two ids are the same")
	}
}

func TestTracesOfOperations(t *testing.T) {
	comm := lifecycle.CommID{1}
	id := func(rank int, call lifecycle.Call, peer int32) string {
		return trace.OpTraceID(comm, rank, tape.Signature{Call: call, Peer: peer}, 8).String()
	}
	if id(0, lifecycle.CallAllReduce, -1) != id(3, lifecycle.CallBroadcast, 2) {
		t.Error("ranks that made different collectives don't meet in one trace")
	}
	if id(1, lifecycle.CallSend, 2) != id(2, lifecycle.CallRecv, 1) {
		t.Error("a send and its receive don't meet in one trace")
	}
	if id(1, lifecycle.CallSend, 2) == id(2, lifecycle.CallSend, 1) {
		t.Error("messages of both directions are in one trace")
	}
	if id(1, lifecycle.CallSendRecv, -1) == id(1, lifecycle.CallAllReduce, -1) {
		t.Error("a send-receive is in the trace of a collective")
	}
}

func TestSamplingSwitchedOff(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.SampleEvery = -1 })
	for seq := uint64(1); seq <= 5000; seq++ {
		p.op(world, tape.OpRecord{
			Time: int64(seq), Stage: tape.StageEnd, Seq: seq, Wait: -1,
			Signature: tape.Signature{Call: lifecycle.CallBarrier},
		})
	}
	p.op(world, tape.OpRecord{
		Time: 5999, Stage: tape.StageEnd, Seq: 1, Wait: -1, Code: lifecycle.CodeTimeout,
		Signature: tape.Signature{Call: lifecycle.CallSplit},
	})
	p.op(world, tape.OpRecord{
		Time: 6000, Stage: tape.StageEnd, Seq: 5001, Wait: -1, Code: lifecycle.CodeTimeout,
		Signature: tape.Signature{Call: lifecycle.CallBarrier},
	})
	// The tape does not know the communicator of this one.
	p.op(tape.CommInfo{}, tape.OpRecord{
		Time: 6001, Stage: tape.StageEnd, Seq: 1, Wait: -1, Code: lifecycle.CodeTimeout,
		Signature: tape.Signature{Call: lifecycle.CallBarrier},
	})
	spans := p.spans()
	if len(spans) != 1 || spans[0].Status.Description != "timeout" {
		t.Errorf("want the failed operation alone, got:\n%s", describe(spans))
	}
}

// TestPostponed has calls while a group job is unfinished, and after it has ended but the program hasn't polled. They
// are in the group's trace, and are no errors. If the tape doesn't have the communicator's acts, such a call has its
// own trace.
func TestPostponed(t *testing.T) {
	p := newProjector(t, nil)
	group := tape.LifeRecord{
		Act: tape.ActGroup, Call: lifecycle.CallGroupEnd, Seq: 4, Stage: tape.StageStart,
		Time: 10 * ms, Peer: -1, Site: site(10),
	}
	p.life(world, group)
	postponed := tape.LifeRecord{
		Act: tape.ActSplit, Call: lifecycle.CallSplit, Stage: tape.StageMisuse, Time: 11 * ms,
		Code: lifecycle.CodeInProgress,
		Peer: -1, State: lifecycle.StateReady, Text: "a call on it is unfinished: wait for it first", Site: site(11),
	}
	p.life(world, postponed)
	group.Stage, group.Time, group.Start, group.Ops, group.Shared = tape.StageEnd, 20*ms, 10*ms, 3, true
	group.Code, group.State, group.Text = lifecycle.CodeMismatch, lifecycle.StateFailed,
		"1 of 3 calls took effect, and then: rank 2 made another"
	p.life(world, group)
	postponed.Act, postponed.Call, postponed.Time, postponed.Text = tape.ActNone, lifecycle.CallAllReduce, 21*ms, ""
	p.life(world, postponed)
	p.life(rails, postponed)
	recorded(t, "postponed.txt", describe(p.spans()))
}

func TestResource(t *testing.T) {
	p := newProjector(t, nil)
	p.act(world, tape.LifeRecord{Act: tape.ActAbort}, ms, 2*ms)
	got := map[string]string{}
	for _, kv := range p.spans()[0].Resource.Attributes() {
		got[string(kv.Key)] = kv.Value.String()
	}
	for key, want := range map[string]string{
		"service.name": "carillon", "service.instance.id": "1", "service.version": "v1", "host.name": "h1",
		"process.pid": "42", "ccl.job": "job1",
	} {
		if got[key] != want {
			t.Errorf("%s = %q, want %q", key, got[key], want)
		}
	}
}
