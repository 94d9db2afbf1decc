package eventlog_test

import (
	"bytes"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/eventlog"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

var world = tape.CommInfo{ID: lifecycle.CommID{0: 0xab, 15: 0xcd}, Name: "world", Rank: 2, Size: 4, Engine: "host"}

func wall(mono int64) time.Time { return time.Unix(1700000000, mono).UTC() }

// lines is the output of a Log, without the time, the id and other constant parts.
type lines struct{ bytes.Buffer }

func (l *lines) taken() string {
	s := strings.ReplaceAll(l.String(), " id="+world.ID.String(), "")
	l.Reset()
	return strings.TrimSuffix(s, "\n")
}

// fed is a Log with its model.
type fed struct {
	*eventlog.Log
	process *model.Process
}

func (l *fed) observe(ev *tape.Event) {
	step := l.process.Apply(ev)
	l.Observe(&step)
}

func newLog(t testing.TB, level slog.Level, edit func(*eventlog.Config)) (*fed, *lines) {
	t.Helper()
	out := &lines{}
	cfg := eventlog.Config{
		Wall: wall,
		Handler: slog.NewTextHandler(out, &slog.HandlerOptions{
			Level: level,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		}),
	}
	if edit != nil {
		edit(&cfg)
	}
	l, err := eventlog.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &fed{l, model.New(model.Limits{})}, out
}

func life(r tape.LifeRecord) tape.Event { return tape.Event{Comm: world, IsLife: true, Life: r} }

// TestJobRank: if a process's environment gives it no rank, the model does: the rank in the largest communicator.
func TestJobRank(t *testing.T) {
	l, out := newLog(t, slog.LevelInfo, func(c *eventlog.Config) { c.JobRank = true })
	const rank = "level=INFO msg=ccl.comm.init rank=2 comm=world comm_rank=2 size=4 "
	ev := life(tape.LifeRecord{Time: 1, Act: tape.ActInit, Stage: tape.StageEnd, Peer: -1})
	ev.Generation = 1
	if l.observe(&ev); !strings.HasPrefix(out.taken(), rank) {
		t.Errorf("of the world: no line begins with %q", rank)
	}
	ev.Generation, ev.Root, ev.Comm = 2, 1, tape.CommInfo{ID: lifecycle.CommID{1}, Parent: world.ID, Rank: 0, Size: 2}
	const part = "level=INFO msg=ccl.comm.init rank=2 comm_rank=0 size=2 "
	if l.observe(&ev); !strings.HasPrefix(out.taken(), part) {
		t.Errorf("of a part of it: no line begins with %q", part)
	}
}

// TestRefusedLevel: a program that gets only error numbers finds the errors of refused calls in the log, but not those
// of calls to repeat.
func TestRefusedLevel(t *testing.T) {
	l, out := newLog(t, slog.LevelWarn, func(c *eventlog.Config) { c.RefusedLevel = slog.LevelWarn })
	for _, code := range []lifecycle.Code{lifecycle.CodeInProgress, lifecycle.CodeDestroyed} {
		ev := life(tape.LifeRecord{
			Time: 1, Act: tape.ActDestroy, Call: lifecycle.CallDestroy, Stage: tape.StageMisuse, Code: code, Peer: -1,
		})
		l.observe(&ev)
	}
	const want = "level=WARN msg=ccl.comm.destroy comm=world comm_rank=2 size=4 error_type=destroyed subsys=DESTROY"
	if got := out.taken(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestRefusedAgainAndAgain: a call that a loop repeats has a line for each of its records, with the number.
func TestRefusedAgainAndAgain(t *testing.T) {
	l, out := newLog(t, slog.LevelInfo, nil)
	for _, times := range []uint32{0, 2, 1024} { // as the tape has counted
		ev := life(tape.LifeRecord{
			Time: 1, Call: lifecycle.CallAllReduce, Stage: tape.StageMisuse, Code: lifecycle.CodeDestroyed, Peer: -1,
			Times: times,
			Site:  lifecycle.Site{Func: "f", File: "f.go", Line: 1},
		})
		l.observe(&ev)
	}
	lines := strings.Split(out.taken(), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines, want 3", len(lines))
	}
	for i, want := range []string{`(f.go:1)" subsys=`, `(f.go:1)" times=2 `, `(f.go:1)" times=1024 `} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("want %q in line %d: %q", want, i, lines[i])
		}
	}
}

// TestLeakAgainAndAgain: of the communicators that a loop makes and leaks, the 1st, 2nd, 4th and so on have a line.
func TestLeakAgainAndAgain(t *testing.T) {
	l, out := newLog(t, slog.LevelInfo, nil)
	for i := range 12 {
		ev := life(tape.LifeRecord{
			Time: int64(i), Act: tape.ActLeak, Call: lifecycle.CallDestroy, Stage: tape.StageMisuse,
			Code: lifecycle.CodeLeaked, Peer: -1,
			Site: lifecycle.Site{Func: "f", File: "f.go", Line: 1 + i/9, Goroutine: uint64(i)},
		})
		l.observe(&ev)
	}
	var got []string
	for line := range strings.Lines(out.taken()) {
		got = append(got, regexp.MustCompile(`f\.go:\d|times=\d+`).FindAllString(line, -1)...)
	}
	want := []string{
		"f.go:1", "f.go:1", "times=2", "f.go:1", "times=4", "f.go:1", "times=8", "f.go:2", "f.go:2", "times=2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the lines have %q, want %q", got, want)
	}
}

func TestOneLineForEachEvent(t *testing.T) {
	here, before := lifecycle.Site{Func: "main.f", File: "/src/main.go", Line: 42},
		lifecycle.Site{Func: "main.g", File: "/src/main.go", Line: 40}
	allReduce := tape.Signature{Call: lifecycle.CallAllReduce, DataType: uint8(kernels.Float32), Peer: -1, Bytes: 1024}
	broadcast := tape.Signature{Call: lifecycle.CallBroadcast, DataType: uint8(kernels.Float32), Peer: 3, Bytes: 1024}
	for _, tt := range []struct {
		name string
		ev   tape.Event
		want string
	}{
		{
			"an act starts", life(tape.LifeRecord{Time: 1000, Act: tape.ActInit, Stage: tape.StageStart, Peer: -1}),
			`level=DEBUG msg="ccl.comm.init (started)" comm=world comm_rank=2 size=4 subsys=INIT`,
		},
		{
			"it goes into a phase", life(tape.LifeRecord{
				Time: 1000, Act: tape.ActInit, Stage: tape.StagePhase,
				Phase: tape.PhaseRendezvous, Peer: -1,
			}),
			`level=DEBUG msg="ccl.comm.init.rendezvous (started)" comm=world comm_rank=2 size=4 subsys=BOOTSTRAP`,
		},
		{
			"why it is in a phase", life(tape.LifeRecord{
				Time: 1000, Act: tape.ActSplit, Seq: 2, Stage: tape.StagePhase,
				Phase: tape.PhaseQueued, Peer: -1, Text: "a group job comes first",
			}),
			`level=INFO msg="ccl.comm.split.queued (started)" comm=world comm_rank=2 size=4 seq=2 ` +
				`reason="a group job comes first" subsys=INIT`,
		},
		{
			"it is in no phase any more", life(tape.LifeRecord{
				Time: 1000, Act: tape.ActSplit, Seq: 2, Stage: tape.StagePhase, Peer: -1,
			}),
			"",
		},
		{
			"it ends", life(tape.LifeRecord{
				Time: 3_123_456, Start: 1, Act: tape.ActInit, Stage: tape.StageEnd,
				State: lifecycle.StateReady, Peer: -1,
			}),
			`level=INFO msg=ccl.comm.init comm=world comm_rank=2 size=4 took=3.12ms state=ready subsys=INIT`,
		},
		{
			"it fails", life(tape.LifeRecord{
				Time: 9e9, Start: 1e9, Act: tape.ActSplit, Seq: 7, Stage: tape.StageEnd, State: lifecycle.StateFailed,
				Code: lifecycle.CodeRankDead, Peer: 3, Text: "rank 3 died", Site: here,
			}),
			`level=INFO msg=ccl.comm.split comm=world comm_rank=2 size=4 seq=7 took=8s state=failed ` +
				`error_type=rank_dead error="rank 3 died" peer=3 at="main.f (main.go:42)" subsys=INIT`,
		},
		{
			"a call is refused", life(tape.LifeRecord{
				Time: 1, Act: tape.ActDestroy, Call: lifecycle.CallDestroy, Stage: tape.StageMisuse,
				State: lifecycle.StateDestroyed,
				Code:  lifecycle.CodeDestroyed, Peer: -1, Text: "destroyed twice", Site: here, First: before,
			}),
			`level=INFO msg=ccl.comm.destroy comm=world comm_rank=2 size=4 state=destroyed error_type=destroyed ` +
				`error="destroyed twice" at="main.f (main.go:42)" first="main.g (main.go:40)" subsys=DESTROY`,
		},
		{
			"a call is put off", life(tape.LifeRecord{
				Time: 1, Act: tape.ActFinalize, Call: lifecycle.CallFinalize, Stage: tape.StageMisuse,
				State: lifecycle.StateReady, Code: lifecycle.CodeInProgress, Peer: -1,
			}),
			`level=DEBUG msg=ccl.comm.finalize comm=world comm_rank=2 size=4 state=ready error_type=in_progress ` +
				`subsys=DESTROY`,
		},
		{
			"the communicator fails", life(tape.LifeRecord{
				Time: 2, Call: lifecycle.CallAllReduce, Seq: 9, Stage: tape.StageEnd, State: lifecycle.StateFailed,
				Code: lifecycle.CodeMismatch, Peer: 1, Text: "ranks disagree",
			}),
			`level=INFO msg=ccl.comm.failure comm=world comm_rank=2 size=4 call=all_reduce seq=9 state=failed ` +
				`error_type=mismatch error="ranks disagree" peer=1 subsys=RAS`,
		},
		{
			"a group ends", life(tape.LifeRecord{
				Time: 5000, Start: 1000, Act: tape.ActGroup, Seq: 3, Ops: 8,
				Stage: tape.StageEnd, Peer: -1,
			}),
			`level=INFO msg=ccl.group comm=world comm_rank=2 size=4 seq=3 ops=8 took=4µs subsys=COLL`,
		},
		{
			"an operation ends",
			tape.Event{Comm: world, Op: tape.OpRecord{
				Time: 5000, Start: 1000, Stage: tape.StageEnd, Seq: 5,
				Signature: broadcast, Algorithm: 1,
			}},
			`level=INFO msg=ccl.broadcast comm=world comm_rank=2 size=4 seq=5 bytes=1024 dtype=float32 root=3 ` +
				`algorithm=ring took=4µs subsys=COLL`,
		},
		{
			"an operation fails",
			tape.Event{Comm: world, Op: tape.OpRecord{
				Time: 5000, Start: 1000, Stage: tape.StageEnd, Seq: 5, Signature: allReduce,
				Code: lifecycle.CodeTimeout, Phase: tape.PhaseTransfer,
			}},
			`level=INFO msg=ccl.all_reduce comm=world comm_rank=2 size=4 seq=5 bytes=1024 dtype=float32 ` +
				`reduction=sum took=4µs error_type=timeout phase=transfer subsys=COLL`,
		},
		{"an operation starts", tape.Event{Comm: world, Op: tape.OpRecord{
			Time: 5000, Stage: tape.StageStart,
			Seq: 5, Signature: allReduce,
		}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, out := newLog(t, slog.LevelDebug, func(c *eventlog.Config) {
				c.Operations = true
				c.AlgorithmName = func(a uint8) string { return []string{"", "ring"}[a] }
			})
			l.observe(&tt.ev)
			if got := out.taken(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestOperationsOnlyWhenAskedFor(t *testing.T) {
	l, out := newLog(t, slog.LevelDebug, nil)
	ev := tape.Event{Comm: world, Op: tape.OpRecord{
		Time: 2, Stage: tape.StageEnd,
		Signature: tape.Signature{Call: lifecycle.CallBarrier, Peer: -1},
	}}
	l.observe(&ev)
	if got := out.taken(); got != "" {
		t.Errorf("logged %s", got)
	}
	ev.Op.Code = lifecycle.CodeAborted
	l.observe(&ev)
	if got := out.taken(); !strings.Contains(got, "error_type=aborted") {
		t.Errorf("a failed one: %q", got)
	}
}

func TestStalls(t *testing.T) {
	asked := 0
	l, out := newLog(t, slog.LevelInfo, func(c *eventlog.Config) {
		c.SpanOfStall = func(*stall.Report) oteltrace.SpanContext {
			asked++
			return oteltrace.SpanContext{}
		}
	})
	r := stall.Report{
		Stage: stall.Stalled, Comm: &model.Comm{CommInfo: world},
		Op: tape.Signature{Call: lifecycle.CallBarrier, Peer: -1}, Seq: 12,
		Phase: tape.PhaseAgree, Wait: 3, Start: 1e9, Now: 6_200_000_000, Normal: 41234, Count: 1,
	}
	l.ObserveStall(&r)
	want := `level=WARN msg=ccl.stall comm=world comm_rank=2 size=4 call=barrier seq=12 phase=agree wait=3 age=5.2s ` +
		`normally=41.2µs subsys=RAS`
	if got := out.taken(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r.Count = 2
	l.ObserveStall(&r)
	if got := out.taken(); got != "" {
		t.Errorf("the second report of a stall is logged: %s", got)
	}
	r.Stage, r.Now = stall.Cleared, 21e9
	l.ObserveStall(&r)
	want = `level=WARN msg="ccl.stall (cleared)" comm=world comm_rank=2 size=4 call=barrier seq=12 phase=agree ` +
		`wait=3 age=20s normally=41.2µs subsys=RAS`
	if got := out.taken(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r = stall.Report{
		Stage: stall.Cleared, Comm: &model.Comm{CommInfo: world}, Act: tape.ActSplit, ActSeq: 4, Wait: -1, Start: 1e9,
		Now: 9e9,
	}
	l.ObserveStall(&r)
	want = `level=INFO msg="ccl.stall (cleared)" comm=world comm_rank=2 size=4 call=split seq=4 age=8s subsys=RAS`
	if got := out.taken(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if asked != 3 {
		t.Errorf("the span was asked for %d times, of three lines", asked)
	}
}

func TestVersionOnceWhereRankZeroIs(t *testing.T) {
	l, out := newLog(t, slog.LevelInfo, func(c *eventlog.Config) { c.Version = "v1.2.3" })
	ev := life(tape.LifeRecord{Time: 1, Act: tape.ActInit, Stage: tape.StageStart, Peer: -1})
	l.observe(&ev)
	if got := out.taken(); got != "" {
		t.Errorf("rank 2 logged %s", got)
	}
	ev.Comm.Rank = 0
	l.observe(&ev)
	if got := out.taken(); !strings.Contains(got, `msg="Carillon version" version=v1.2.3 go=go1.`) {
		t.Errorf("rank 0 logged %q", got)
	}
	l.observe(&ev)
	if got := out.taken(); got != "" {
		t.Errorf("the second time it logged %s", got)
	}
}

func TestTimesAreTheEvents(t *testing.T) {
	var out bytes.Buffer
	l, err := eventlog.New(eventlog.Config{Handler: slog.NewTextHandler(&out, nil), Wall: wall})
	if err != nil {
		t.Fatal(err)
	}
	ev := life(tape.LifeRecord{Time: 123_000_000, Act: tape.ActAbort, Stage: tape.StageEnd, Peer: -1})
	(&fed{l, model.New(model.Limits{})}).observe(&ev)
	if !strings.HasPrefix(out.String(), "time=2023-11-14T22:13:20.123Z ") {
		t.Errorf("logged %s", out.String())
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	if _, err := eventlog.New(eventlog.Config{Wall: wall}); err == nil || !strings.Contains(err.Error(), "Handler") {
		t.Errorf("without a handler: %v", err)
	}
	if _, err := eventlog.New(eventlog.Config{Handler: slog.DiscardHandler}); err == nil ||
		!strings.Contains(err.Error(), "Wall") {
		t.Errorf("without a clock: %v", err)
	}
}

// BenchmarkObserve measures an operation that isn't logged, one that is, and an act.
func BenchmarkObserve(b *testing.B) {
	op := tape.Event{Comm: world, Op: tape.OpRecord{
		Time: 5000, Start: 1000, Stage: tape.StageEnd, Seq: 5, Signature: tape.Signature{
			Call:     lifecycle.CallAllReduce,
			DataType: uint8(kernels.Float32), Peer: -1, Bytes: 1024,
		},
	}}
	act := life(tape.LifeRecord{
		Time: 3_123_456, Start: 1, Act: tape.ActInit, Stage: tape.StageEnd,
		State: lifecycle.StateReady, Peer: -1,
	})
	for _, bb := range []struct {
		name  string
		ev    *tape.Event
		level slog.Level
	}{
		{"event=operation/log=off", &op, slog.LevelWarn},
		{"event=operation/log=on", &op, slog.LevelInfo},
		{"event=act/log=off", &act, slog.LevelWarn},
		{"event=act/log=on", &act, slog.LevelInfo},
	} {
		b.Run(bb.name, func(b *testing.B) {
			l, out := newLog(b, bb.level, func(c *eventlog.Config) { c.Operations = bb.level <= slog.LevelInfo })
			step := l.process.Apply(bb.ev)
			b.ReportAllocs()
			for b.Loop() {
				l.Observe(&step)
				out.Reset()
			}
		})
	}
}
