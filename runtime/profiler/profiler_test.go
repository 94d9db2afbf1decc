package profiler_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/profiler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a plug-in that records its calls; its handles are numbers.
type fake struct {
	mask profiler.Mask
	init func() error
	call func() // called in each call

	mu    sync.Mutex
	lines []string
	last  int
}

func (f *fake) Name() string        { return "fake" }
func (f *fake) Mask() profiler.Mask { return f.mask }

func (f *fake) Init(i profiler.Info) (profiler.Recorder, error) {
	if f.init != nil {
		if err := f.init(); err != nil {
			return nil, err
		}
	}
	f.say("init %s %d/%d", i.Name, i.Rank, i.Size)
	return f, nil
}

func (f *fake) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = append(f.lines, fmt.Sprintf(format, args...))
}

func (f *fake) told() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.lines)
}

func (f *fake) Start(e *profiler.Event) profiler.Handle {
	if f.call != nil {
		f.call()
	}
	f.last++
	f.say("%d: start %#x parent=%v group=%v %v", f.last, uint32(e.Type), e.Parent, e.Group, e.Op.Call)
	return f.last
}

func (f *fake) State(h profiler.Handle, c *profiler.Change) {
	f.say("%v: state %d %d", h, c.State, c.N)
}
func (f *fake) Stop(h profiler.Handle, e *profiler.End) { f.say("%v: stop %v", h, e.Code) }
func (f *fake) Finalize()                               { f.say("finalize") }

// logged is a log, and its contents.
func logged() (*slog.Logger, func() string) {
	var mu sync.Mutex
	var b strings.Builder
	return slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return b.Write(p)
		}), nil)), func() string {
			mu.Lock()
			defer mu.Unlock()
			return b.String()
		}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

var info = profiler.Info{Name: "dp", Rank: 1, Size: 2, Nodes: 1}

func allReduce() *profiler.Operation {
	return &profiler.Operation{Call: lifecycle.CallAllReduce, Peer: -1, Count: 4}
}

// Events have their parents, according to the mask; an operation outside groups is a group of one.
func TestOrder(t *testing.T) {
	const all = "1: start 0x100 parent=<nil> group=<nil> none|1: state 23 0|1: state 24 0|" +
		"2: start 0x200 parent=1 group=<nil> all_reduce|2: stop ok|3: start 0x1 parent=<nil> group=<nil> none|" +
		"4: start 0x2 parent=2 group=3 all_reduce|" +
		"5: start 0x8 parent=4 group=<nil> none|5: state 19 0|6: start 0x10 parent=5 group=<nil> none|" +
		"6: state 9 64|6: stop ok|5: stop ok|" +
		"7: start 0x8 parent=<nil> group=<nil> none|7: state 19 0|7: stop ok|" +
		"4: stop rank_dead|3: stop rank_dead|1: stop rank_dead|" +
		"8: start 0x100 parent=<nil> group=<nil> none|8: state 23 0|8: state 24 0|" +
		"9: start 0x1 parent=<nil> group=<nil> none|" +
		"10: start 0x400 parent=8 group=<nil> send|10: stop ok|11: start 0x4 parent=10 group=9 send|" +
		"11: stop ok|9: stop ok|8: stop ok"
	for _, c := range []struct {
		mask profiler.Mask
		want string
	}{
		{profiler.All, all},
		{0, ""},
		{profiler.GroupAPI, "1: start 0x100 parent=<nil> group=<nil> none|1: state 23 0|1: state 24 0|" +
			"1: stop rank_dead|" +
			"2: start 0x100 parent=<nil> group=<nil> none|2: state 23 0|2: state 24 0|2: stop ok"},
		{profiler.Group, "1: start 0x100 parent=<nil> group=<nil> none|1: state 23 0|1: state 24 0|" +
			"2: start 0x1 parent=<nil> group=<nil> none|2: stop rank_dead|1: stop rank_dead|" +
			"3: start 0x100 parent=<nil> group=<nil> none|3: state 23 0|3: state 24 0|" +
			"4: start 0x1 parent=<nil> group=<nil> none|4: stop ok|3: stop ok"},
	} {
		f := &fake{mask: c.mask}
		p := profiler.New(profiler.Config{Plugins: []profiler.Plugin{f}, Log: slog.New(slog.DiscardHandler)})
		comm := p.Comm(t.Context(), info)
		comm.Bind(7)
		op := comm.StartOperation(0, allReduce())
		mine := &profiler.ProxyOperation{Owner: comm.Owner(), Peer: 0}
		po := comm.StartProxyOp(mine, 0)
		comm.State(po, profiler.ProxyOpInProgress, 0)
		step := comm.StartProxyStep(po, mine.Owner, 0, profiler.SendWait, 64)
		comm.Stop(step, lifecycle.CodeOK)
		comm.Stop(po, lifecycle.CodeOK)
		foreign := *mine
		foreign.Owner.Generation++
		comm.Stop(comm.StartProxyOp(&foreign, profiler.ProxyOpInProgress), lifecycle.CodeOK)
		comm.Stop(op, lifecycle.CodeRankDead)
		comm.Stop(op, lifecycle.CodeRankDead) // the second time has no effect
		group := comm.StartGroup()
		send := comm.StartOperation(group, &profiler.Operation{Call: lifecycle.CallSend, Peer: 0})
		comm.Stop(send, lifecycle.CodeOK)
		comm.Stop(group, lifecycle.CodeOK)
		comm.Close()
		comm.Close()
		p.Close(t.Context())
		want := []string{"init dp 1/2"}
		if c.want != "" {
			want = append(want, strings.Split(c.want, "|")...)
		}
		if diff := cmp.Diff(append(want, "finalize"), f.told()); diff != "" {
			t.Errorf("mask %#x (-want +got):\n%s", uint32(c.mask), diff)
		}
	}
}

// A plug-in that misbehaves is switched off, and the caller and the other plug-in continue.
func TestSwitchedOff(t *testing.T) {
	block := make(chan struct{})
	for name, c := range map[string]struct {
		bad  *fake
		want string
		soon bool // the plug-in returns when block is closed
	}{
		"panics":        {bad: &fake{call: func() { panic("broken") }}, want: "it panicked: broken"},
		"ends":          {bad: &fake{call: runtime.Goexit}, want: "it ended its goroutine"},
		"never returns": {bad: &fake{call: func() { <-block }}, want: "it has not returned from a call for 200ms"},
		"init fails":    {bad: &fake{init: func() error { return errors.New("no") }}, want: "its Init failed: no"},
		"init panics":   {bad: &fake{init: func() error { panic("no") }}, want: "it panicked: no"},
		"init never returns": {
			bad: &fake{init: func() error { <-block; return nil }}, want: "200ms",
		},
	} {
		t.Run(name, func(t *testing.T) {
			log, text := logged()
			c.bad.mask = profiler.All
			good := &fake{mask: profiler.Collective}
			p := profiler.New(profiler.Config{
				Plugins: []profiler.Plugin{c.bad, good}, Patience: 200 * time.Millisecond, Log: log,
			})
			comm := p.Comm(t.Context(), info)
			for off := ""; off == ""; off = p.Status()[0].Off {
				comm.Stop(comm.StartOperation(0, allReduce()), lifecycle.CodeOK)
				runtime.Gosched()
			}
			if off := p.Status()[0].Off; !strings.Contains(off, c.want) && !strings.Contains(off, "too slow") {
				t.Errorf("it is off because %q, want %q", off, c.want)
			}
			p.Close(t.Context())
			if n := strings.Count(text(), "switched off"); n < 1 {
				t.Errorf("%d lines in the log: %s", n, text())
			}
		})
	}
	close(block)
}

// A plug-in whose queue is full is switched off at once: nothing waits for it.
func TestSlow(t *testing.T) {
	block := make(chan struct{})
	slow := &fake{mask: profiler.All, call: func() { <-block }}
	log, text := logged()
	p := profiler.New(profiler.Config{Plugins: []profiler.Plugin{slow}, Patience: time.Hour, Log: log})
	comm := p.Comm(t.Context(), info)
	for n := 0; p.Status()[0].Off == ""; n++ {
		if n > 1<<16 {
			t.Fatal("it is not off")
		}
		comm.Stop(comm.StartOperation(0, allReduce()), lifecycle.CodeOK)
	}
	if comm.Wants(profiler.All) {
		t.Error("something is wanted still")
	}
	close(block)
	p.Close(t.Context())
	if !strings.Contains(text(), "events wait for it") {
		t.Errorf("the log: %s", text())
	}
	if told := slow.told(); told[len(told)-1] != "finalize" {
		t.Errorf("it was not finalized: %q", told)
	}
	if p.Comm(t.Context(), info) != nil {
		t.Error("a communicator is told to nobody")
	}
}

// owned is a handle that records the communicator and the plug-in that it was made for.
type owned struct {
	recorder *owner
	open     bool
}

// owner checks that it only gets handles that it has returned itself.
type owner struct {
	t      *rapid.T
	plugin *owners
	ended  bool
}

type owners struct {
	t     *rapid.T
	wrong []string
	told  int
}

func (o *owners) Name() string        { return "owners" }
func (o *owners) Mask() profiler.Mask { return profiler.All }
func (o *owners) Init(profiler.Info) (profiler.Recorder, error) {
	return &owner{t: o.t, plugin: o}, nil
}

func (o *owner) check(what string, h profiler.Handle, open bool) *owned {
	o.plugin.told++
	if h == nil {
		return nil
	}
	mine, ok := h.(*owned)
	if !ok || mine.recorder != o || open && !mine.open || o.ended {
		o.plugin.wrong = append(o.plugin.wrong, fmt.Sprintf("%s got %+v", what, h))
	}
	return mine
}

func (o *owner) Start(e *profiler.Event) profiler.Handle {
	o.check("the parent", e.Parent, false)
	o.check("the group", e.Group, false)
	if foreign := e.Proxy.Owner.PID != os.Getpid() && e.Type == profiler.ProxyOp; foreign && e.Parent != nil {
		o.plugin.wrong = append(o.plugin.wrong, "another process's operation has a parent")
	}
	return &owned{o, true}
}

func (o *owner) State(h profiler.Handle, _ *profiler.Change) { o.check("a state", h, true) }
func (o *owner) Stop(h profiler.Handle, _ *profiler.End)     { o.check("a stop", h, true).open = false }
func (o *owner) Finalize()                                   { o.ended = true }

// Whatever ranks, proxies and generations do, in whatever order, with events that have ended or belong to others, a
// plug-in only gets handles that it returned itself, for this communicator, and that are open.
func TestHandles(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		plugins := []*owners{{t: rt}, {t: rt}}
		p := profiler.New(profiler.Config{
			Plugins: []profiler.Plugin{plugins[0], plugins[1]}, Log: slog.New(slog.DiscardHandler),
		})
		comms := make([]*profiler.Comm, 4)
		for r := range comms {
			comms[r] = p.Comm(t.Context(), profiler.Info{Rank: r, Size: len(comms)})
		}
		ids := []profiler.ID{0}
		steps := rapid.IntRange(1, 200).Draw(rt, "steps")
		for range steps {
			c := comms[rapid.IntRange(0, len(comms)-1).Draw(rt, "comm")]
			id := ids[rapid.IntRange(0, len(ids)-1).Draw(rt, "id")] // from any communicator, open or not
			owner := comms[rapid.IntRange(0, len(comms)-1).Draw(rt, "owner")].Owner()
			owner.PID += rapid.IntRange(0, 1).Draw(rt, "process")
			switch rapid.IntRange(0, 7).Draw(rt, "act") {
			case 0:
				ids = append(ids, c.StartGroup())
			case 1:
				ids = append(ids, c.StartOperation(id, allReduce()))
			case 2:
				ids = append(ids, c.StartProxyOp(&profiler.ProxyOperation{Owner: owner}, 0))
			case 3:
				ids = append(ids, c.StartProxyStep(id, owner, 1, profiler.SendWait, 1))
			case 4:
				c.State(id, profiler.SendWait, 1)
			case 5:
				c.Stop(id, lifecycle.CodeOK)
			case 6:
				c.Bind(rapid.Uint64Range(0, 2).Draw(rt, "generation"))
			case 7:
				if rapid.IntRange(0, 9).Draw(rt, "close") == 0 {
					c.Close()
				}
			}
		}
		p.Close(context.Background())
		for _, o := range plugins {
			if len(o.wrong) > 0 {
				rt.Errorf("after %d calls: %q", o.told, o.wrong)
			}
		}
	})
}

// An event is a value: reporting it allocates no memory, whether or not it is wanted.
func TestNoMemory(t *testing.T) {
	block := make(chan struct{})
	wanting := &fake{mask: profiler.Collective, call: func() { <-block }}
	p := profiler.New(profiler.Config{Plugins: []profiler.Plugin{wanting}})
	comm, op := p.Comm(t.Context(), info), allReduce()
	for _, c := range []*profiler.Comm{nil, comm} {
		if n := testing.AllocsPerRun(100, func() { c.Stop(c.StartOperation(0, op), lifecycle.CodeOK) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
	close(block)
	p.Close(t.Context())
}

// nop accepts everything and keeps nothing.
type nop struct{}

func (nop) Name() string                                  { return "nop" }
func (nop) Mask() profiler.Mask                           { return profiler.Collective }
func (nop) Init(profiler.Info) (profiler.Recorder, error) { return nop{}, nil }
func (nop) Start(*profiler.Event) profiler.Handle         { return nil }
func (nop) State(profiler.Handle, *profiler.Change)       {}
func (nop) Stop(profiler.Handle, *profiler.End)           {}
func (nop) Finalize()                                     {}

func BenchmarkOperation(b *testing.B) {
	for name, plugins := range map[string][]profiler.Plugin{"none": nil, "one": {nop{}}} {
		b.Run(name, func(b *testing.B) {
			p := profiler.New(profiler.Config{Plugins: plugins, Log: slog.New(slog.DiscardHandler)})
			defer p.Close(context.Background())
			c, op := p.Comm(b.Context(), info), allReduce()
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if n%1000 == 999 && c != nil { // a full queue would switch it off
					b.StopTimer()
					for uint64(2*n) > p.Status()[0].Told {
						runtime.Gosched()
					}
					b.StartTimer()
				}
				if c.Wants(profiler.Operations) {
					c.Stop(c.StartOperation(0, op), lifecycle.CodeOK)
				}
			}
		})
	}
}
