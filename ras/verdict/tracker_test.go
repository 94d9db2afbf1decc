package verdict_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestAnswered: when a verdict no longer holds, whether its culprits have done what the ranks in its call waited for.
func TestAnswered(t *testing.T) {
	hang := newJob(4).in(world, 41, allReduce, s6, 2, s6, 0, 1, 3)
	arrived := func() job {
		return newJob(4).in(world, 41, allReduce, s6, 2, s6, 0, 1, 3).in(world, 41, allReduce, 0, -1, 0, 2)
	}
	verdicts, _ := verdict.Diagnose(hang)
	if len(verdicts) != 1 || verdicts[0].Reason != verdict.NotEntered {
		t.Fatalf("%v", verdicts)
	}
	for _, c := range []struct {
		name  string
		after job
		want  bool
	}{
		{"it has entered", arrived(), true},
		{"it has entered, and the others are gone", arrived().without(0, 1, 3), false},
		{"it has entered, and the others gave up", arrived().with(gaveUp, 0, 1, 3), false},
		{"it is dead", arrived().with(fate(verdict.Dead, 0, ""), 2), false},
		{"it is gone", arrived().without(2), false},
	} {
		if got := verdicts[0].Answered(c.after); got != c.want {
			t.Errorf("%s: answered %v, want %v", c.name, got, c.want)
		}
	}
}

// TestResolved: when a verdict no longer holds, whether its cause is gone, or only the ranks that waited are.
func TestResolved(t *testing.T) {
	stopped := func() job { return hang().with(fate(verdict.Stopped, 5*time.Second, ""), 2) }
	died := func() job { return hang().with(fate(verdict.Dead, 5*time.Second, ""), 2) }
	away := func() job { return hang().with(fate(verdict.Unreachable, 5*time.Second, ""), 2) }
	alive := fate(verdict.Alive, 0, "")
	for _, c := range []struct {
		name          string
		before, after job
		want          bool
	}{
		{
			"they have what they waited for", hang(), hang().did(world, 41, allReduce, time.Millisecond, 0, 1, 2, 3),
			true,
		},
		{
			"some have, the others are gone", hang(),
			hang().did(world, 41, allReduce, time.Millisecond, 0, 1).without(2, 3), true,
		},
		{
			"all have joined, and the communicator has got its own id",
			newJob(3).with(func(n *verdict.Note, s *verdict.Slot) {
				act(tape.ActInit, s6, true)(n, s)
				s.State = lifecycle.StateInitializing
			}, 0, 1).without(2),
			newJob(3).with(func(_ *verdict.Note, s *verdict.Slot) { s.Was, s.Comm = s.Comm, [16]byte{'w'} }, 0, 1, 2),
			true,
		},
		{"they gave up", hang(), hang().with(gaveUp, 0, 1, 3), false},
		{
			"they aborted the communicator", hang(),
			hang().did(world, 41, allReduce, time.Millisecond, 0, 1, 3).with(aborted, 0, 1, 3), false,
		},
		{"they are gone", hang(), hang().without(0, 1, 3), false},
		{
			"others go on, whom it never concerned", newJob(6).comm("left", 0, 1, 2).comm("right", 3, 4, 5).in("left",
				41, allReduce, s6, 2, s6, 0, 1),
			newJob(6).comm("right", 3, 4, 5).did("right", 950, allReduce, time.Millisecond, 3, 4, 5).without(0, 1),
			false,
		},
		{"it runs again", stopped(), stopped().with(alive, 2), true},
		{"it ran to its end", stopped(), stopped().with(fate(verdict.Departed, 0, ""), 2), true},
		{"it is dead", stopped(), stopped().with(fate(verdict.Dead, 0, ""), 2).with(gaveUp, 0, 1, 3), false},
		{"it answers again", away(), away().with(alive, 2), true},
		{"it doesn't, and those that waited gave up", away(), away().with(gaveUp, 0, 1, 3), false},
		{
			"the others go on without the dead", died(),
			died().with(gaveUp, 0, 1, 3).comm("smaller", 0, 1, 3).did("smaller",
				1, allReduce, time.Millisecond, 0, 1, 3), true,
		},
		{"the others end because of the dead", died(), died().with(gaveUp, 0, 1, 3), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			verdicts, _ := verdict.Diagnose(c.before)
			if len(verdicts) != 1 {
				t.Fatalf("%d verdicts: %v", len(verdicts), verdicts)
			}
			if got := verdicts[0].Resolved(c.after, time.Second); got != c.want {
				t.Errorf("%v: resolved %v, want %v", &verdicts[0], got, c.want)
			}
		})
	}
}

// TestTracker: a verdict goes on while its cause does, whether more or less is known of it, and is news when it says
// something else.
func TestTracker(t *testing.T) {
	var tracker verdict.Tracker
	update := func(j job) string {
		verdicts, _ := verdict.Diagnose(j)
		var kinds []string
		for _, c := range tracker.Update(tracker.Continue(verdicts)) {
			kinds = append(kinds, c.Kind.String()+" "+c.Verdict.Reason.String())
		}
		return strings.Join(kinds, ", ")
	}
	away := fate(verdict.Unreachable, 4*time.Second, "it doesn't answer")
	hang := func() job { return newJob(6).in(world, 7, allReduce, s6, 4, s6, 0, 1, 2, 3) }
	for _, c := range []struct {
		name string
		job  job
		want string
	}{
		{
			"a host is out of reach", hang().with(away, 4).in(world, 7, allReduce, s6, 4, s6, 5),
			"opened rank_unreachable",
		},
		{"with both of its processes", hang().with(away, 4, 5), "changed rank_unreachable"},
		{"one of them is back", hang().with(away, 5).in(world, 7, allReduce, s6, 5, s6, 4), "changed rank_unreachable"},
		{
			"time goes by",
			hang().with(fate(verdict.Unreachable, time.Minute, ""), 5).in(world, 7, allReduce, s6, 5, s6, 4), "",
		},
		{
			"it died", hang().with(fate(verdict.Dead, time.Second, ""), 5).in(world, 7, allReduce, s6, 5, s6, 4),
			"opened rank_dead, withdrawn rank_unreachable",
		},
		{"three wait for each other", ring(s6, s5, s5), "opened deadlock, withdrawn rank_dead"},
		{"another one seems to be the first", ring(s5, s6, s5), "changed deadlock"},
	} {
		if got := update(c.job); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
