package agent

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestLaunched: rank 0 of 2 waits in its init, and nothing but the launcher's ledger tells of rank 1, or that the job
// is told to end.
func TestLaunched(t *testing.T) {
	end := func(exit process.Exit) process.Entry { return process.Entry{Rank: 1, PID: 17, Exit: exit} }
	told := process.Entry{Ended: "SIGINT"}
	exited := end(process.Exit{Known: true})
	killed := end(process.Exit{Known: true, Signal: syscall.SIGKILL})
	for name, c := range map[string]struct {
		noted []process.Entry
		again bool // the job has been started again since
		want  []string
	}{
		"nothing":                  {want: []string{"not_joined 1"}},
		"exited":                   {noted: []process.Entry{exited}, want: []string{"rank_dead 1"}},
		"killed":                   {noted: []process.Entry{killed}, want: []string{"rank_dead 1"}},
		"told to end":              {noted: []process.Entry{told, killed}},
		"killed, then told to end": {noted: []process.Entry{killed, told}, want: []string{"rank_dead 1"}},
		"an earlier run":           {noted: []process.Entry{killed, told}, again: true, want: []string{"not_joined 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				self := mesh.Member{Name: "a-1", Host: "a", ID: process.Self(), JobSize: 2}
				began := process.Monotonic()
				entries := slices.Concat([]process.Entry{{Rank: -1}}, c.noted)
				if c.again {
					entries = append(entries, process.Entry{Rank: -1})
				}
				for i, e := range entries {
					if e.Began = began; i > len(c.noted) {
						e.Began = process.Monotonic()
					}
					if err := process.AppendEntry(dir, e); err != nil {
						t.Fatal(err)
					}
				}
				var opened []string
				a := New(self, func() verdict.Note { return inInit(self) }, Config{
					Launched: FromLedger(dir, self),
					Event: func(ev bus.Event, _ bool) {
						if ev.Stage == bus.Opened {
							opened = append(opened, ev.Reason+" "+ev.Rank)
						}
					},
				})
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				a.Trouble()
				a.Run(ctx, nil)
				if !slices.Equal(opened, c.want) {
					t.Errorf("told %q, want %q", opened, c.want)
				}
			})
		})
	}
}

// TestLeftAndExited: a process that announced that it leaves, as a deferred Stop does in a panic, has the exit that the
// launcher recorded.
func TestLeftAndExited(t *testing.T) {
	dir := t.TempDir()
	self := mesh.Member{Name: "a-1", Host: "a", ID: process.Self(), JobSize: 2}
	left := mesh.Status{Member: self.Beside(17, 1), State: mesh.Left, Cause: mesh.CauseTold, Since: time.Now()}
	began := process.Monotonic()
	for _, e := range []process.Entry{{Rank: -1}, {Rank: 1, PID: 17, Exit: process.Exit{Known: true, Code: 2}}} {
		e.Began = began
		if err := process.AppendEntry(dir, e); err != nil {
			t.Fatal(err)
		}
	}
	a := New(self, func() verdict.Note { return inInit(self) }, Config{
		Kept: func() []mesh.Status { return []mesh.Status{left} }, Event: func(bus.Event, bool) {},
	})
	a.noted = FromLedger(dir, self)().Ends
	for _, s := range a.membership().Members {
		if got, want := CauseText(&s), "it exited with 2"; s.Member.Rank == 1 && got != want {
			t.Errorf("rank 1 has left: %q, want %q", got, want)
		}
	}
	if len(a.ended) > 0 {
		t.Errorf("%v are taken for processes that only the launcher knew", a.ended)
	}
}

// inInit is the note of rank 0 of 2, which waits in its init.
func inInit(self mesh.Member) (n verdict.Note) {
	identify(&n, &self)
	n.Slots = []verdict.Slot{{
		Comm: lifecycle.CommID{1}, Name: "world", Size: 2, Job: 0, Wait: -1, State: lifecycle.StateInitializing,
		Acts: []verdict.OpenAct{{Act: tape.ActInit, Age: 10 * time.Second, Stalled: true}},
	}}
	return n
}
