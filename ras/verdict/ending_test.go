package verdict_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestEnding: the end of a communicator hangs because other ranks have not launched or made a call, or with all ranks
// in it.
func TestEnding(t *testing.T) {
	destroys := func(n *verdict.Note, s *verdict.Slot) {
		act(tape.ActDestroy, s6, true)(n, s)
		s.State = lifecycle.StateDestroying
	}
	for _, c := range []struct {
		name string
		job  job
		want []string
	}{
		{"one has not called it", newJob(3).did(world, 7, allReduce, s6, 0, 1, 2).with(destroys, 0, 1), []string{
			`not_entered (likely) rank 2 (node1, pid 1002) has not entered the destroy of "world"; its last, ` +
				`all_reduce 7 on "world", ended 6s ago; ranks 0 and 1 wait`,
		}},
		{
			"one has not made the last collective",
			newJob(3).did(world, 7, allReduce, 7*time.Second, 2).did(world, 8, allReduce, s6, 0, 1).with(
				func(n *verdict.Note, s *verdict.Slot) { s.Unproven, s.Done = true, 7; destroys(n, s) }, 0, 1),
			[]string{
				`not_entered (certain) rank 2 (node1, pid 1002) has not entered all_reduce 8 on "world"; its last, ` +
					`all_reduce 7 on "world", ended 7s ago; ranks 0 and 1 wait`,
			},
		},
		{"all are in it", newJob(2).did(world, 7, allReduce, s6, 0, 1).with(destroys, 0, 1), []string{
			`unknown (possible) the destroy of "world" does not complete, and the cause is not known: all ranks have ` +
				`called it`,
		}},
		{"the others are through", newJob(3).with(destroys, 0).with(func(_ *verdict.Note, s *verdict.Slot) {
			s.Left = &verdict.Left{Act: tape.ActDestroy, Age: s6}
		}, 1, 2), []string{`unknown (possible) the destroy of "world" does not complete`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			verdicts, _ := verdict.Diagnose(c.job)
			var got []string
			for _, v := range verdicts {
				got = append(got, fmt.Sprintf("%s (%s) %s", v.Reason, v.Confidence, v.Text))
			}
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}

// alone returns the verdict on a job, which must be the only one and name just that rank.
func alone(t *testing.T, j job, rank int) *verdict.Verdict {
	t.Helper()
	verdicts, _ := verdict.Diagnose(j)
	if len(verdicts) != 1 || len(verdicts[0].Culprits) != 1 || verdicts[0].Culprits[0].Job != rank {
		t.Fatalf("got %+v; want rank %d alone", verdicts, rank)
	}
	return &verdicts[0]
}

// A rank that a shrink leaves out doesn't hold it up.
func TestLeftOut(t *testing.T) {
	shrinks := func(_ *verdict.Note, s *verdict.Slot) {
		s.Acts = []verdict.OpenAct{{Act: tape.ActShrink, Seq: 1, Age: s6, Stalled: true, Without: []int{3}}}
	}
	j := newJob(4).in(world, 7, lifecycle.CallShrink, s6, -1, 0, 0, 2).with(shrinks, 0, 2)
	alone(t, j, 1)
	// But it does hold up what it had to call before.
	j = newJob(4).in(world, 7, allReduce, s6, -1, 0, 0, 1, 2).with(shrinks, 0)
	alone(t, j, 3)
	// And a rank that leaves out other ranks than the rest is wrong, in whatever order they are listed.
	j = newJob(6).in(world, 7, lifecycle.CallShrink, s6, -1, 0, seq(4)...)
	for r, without := range [][]int{{4, 5}, {5, 4}, {3, 5}, {4, 5}} {
		j.with(act(tape.ActShrink, s6, true), r)
		j.slot(r, world).Acts[0].Without = without
	}
	v := alone(t, j, 2)
	if want := "ranks 0, 1 and 3: shrink without ranks 4 and 5; rank 2: shrink without ranks 3 and 5"; v.Reason !=
		verdict.Mismatch || !strings.HasSuffix(v.Text.String(), want) {
		t.Errorf("%s: %s", v.Reason, v.Text)
	}
	// Of a long list, the end is not known.
	j.slot(2, world).Acts[0].Without = []int{3, model.OtherRanks}
	if verdicts, _ := verdict.Diagnose(j); slices.ContainsFunc(verdicts, func(v verdict.Verdict) bool {
		return v.Reason == verdict.Mismatch
	}) {
		t.Errorf("of a list that is cut: %+v", verdicts)
	}
}

// TestNeverShrinks: a rank that doesn't come to a shrink is named by its number in the job, whichever ranks the shrink
// leaves out, if that is known.
func TestNeverShrinks(t *testing.T) {
	shrinking := func(without ...int) job {
		j := newJob(5).comm("smaller", 0, 2, 4)
		for r := range j {
			j.slot(r, "smaller").Acts = []verdict.OpenAct{{Act: tape.ActInit, Age: s6, Stalled: true}}
			if r%2 == 0 {
				j.with(act(tape.ActShrink, s6, true), r)
				j.slot(r, world).Acts[0].Without = without
			}
		}
		j[2].Slots = j[2].Slots[:1]
		j.slot(2, world).Acts = nil
		return j
	}
	v := alone(t, shrinking(1, 3), 2)
	if r := v.Culprits[0]; v.Reason != verdict.NotJoined || r.Comm != 1 {
		t.Errorf("%s, and it is rank %d there", v, r.Comm)
	}
	if v := alone(t, shrinking(), -1); !strings.HasPrefix(v.Text.String(), `rank 1 of "smaller" has not joined`) {
		t.Error(v)
	}
}

// TestShrinkBesideASplit: a shrink of the parent did not make a communicator that was there before, whose ranks aren't
// the shrink's.
func TestShrinkBesideASplit(t *testing.T) {
	j := newJob(6).comm("even", 0, 2, 4).in("even", 7, allReduce, s6, -1, 0, 0, 2)
	for _, r := range []int{0, 2} {
		j.slot(r, "even").Created = time.Hour
		j.with(act(tape.ActShrink, s5, true), r)
		j.slot(r, world).Acts[0].Without = []int{5}
	}
	j[4].Slots = j[4].Slots[:1]
	verdicts, _ := verdict.Diagnose(j)
	for _, v := range verdicts {
		if slices.ContainsFunc(v.Culprits, func(r verdict.Rank) bool { return r.Job == 2 }) {
			t.Error(v)
		}
	}
}

// grouped puts ranks into an act that a group's end has not launched yet.
func grouped(kind tape.Act, age time.Duration) func(*verdict.Note, *verdict.Slot) {
	return func(n *verdict.Note, s *verdict.Slot) {
		act(kind, age, true)(n, s)
		s.Acts[len(s.Acts)-1].Phase = tape.PhaseGroup
	}
}

// TestUnfinishedGroup: a rank that doesn't end the group in which it has made the call that all are in holds the others
// up.
func TestUnfinishedGroup(t *testing.T) {
	split := func() job { return newJob(4).in(world, 4, lifecycle.CallSplit, s6, -1, 0, seq(4)...) }
	// Their groups have ended, and NCCL goes on with them.
	pending := func(n *verdict.Note, s *verdict.Slot) {
		act(tape.ActSplit, s6, true)(n, s)
		act(tape.ActGroup, s5, true)(n, s)
	}
	for name, j := range map[string]job{
		"a split": split().with(act(tape.ActSplit, s6, true), 0, 1, 3).with(grouped(tape.ActSplit, s6), 2),
		"two splits that don't block": split().with(pending, 0, 1, 3).with(grouped(tape.ActSplit, s6), 2).
			with(grouped(tape.ActSplit, s6), 2),
		"an all-reduce to which NCCL connects the others": newJob(4).in(world, 1, allReduce, s6, -1, 0, seq(4)...).
			with(func(_ *verdict.Note, s *verdict.Slot) { s.Counted, s.Enqueues = true, true }, seq(4)...).
			with(func(_ *verdict.Note, s *verdict.Slot) { s.Phase = tape.PhaseGroup }, 2),
		"a finalize": newJob(4).with(act(tape.ActFinalize, s6, true), 0, 1, 3).with(grouped(tape.ActFinalize, s6), 2),
		"two inits": newJob(4).comm("x", seq(4)...).with(act(tape.ActInit, s6, true), 0, 1, 3).
			with(grouped(tape.ActInit, s6), 2).with(func(n *verdict.Note, s *verdict.Slot) {
			x := &n.Slots[1]
			x.Acts = slices.Clone(s.Acts)
			x.Acts[0].Age = s5
		}, seq(4)...),
	} {
		t.Run(name, func(t *testing.T) {
			if v := alone(t, j, 2); v.Reason != verdict.UnfinishedGroup || v.Confidence != verdict.Certain ||
				len(v.Victims) != 3 {
				t.Errorf("got %+v", v)
			}
		})
	}
	// The program has not asked NCCL whether it is done.
	unasked := func(n *verdict.Note, s *verdict.Slot) {
		act(tape.ActFinalize, s6, true)(n, s)
		s.Acts[0].Phase = tape.PhaseInProgress
	}
	for _, ranks := range [][]int{{0, 1, 3}, seq(4)} {
		if v, _ := verdict.Diagnose(newJob(4).with(unasked, ranks...)); len(v) > 0 {
			t.Errorf("a finalize of %d that may be done: %+v", ranks, v)
		}
	}
	// The others have completed it.
	gone := func(_ *verdict.Note, s *verdict.Slot) {
		s.State, s.Left = lifecycle.StateDestroyed, &verdict.Left{Act: tape.ActDestroy, Age: s5}
	}
	v := alone(t, newJob(4).with(gone, 0, 1, 3).with(grouped(tape.ActFinalize, s6), 2), 2)
	if v.Reason != verdict.UnfinishedGroup || len(v.Victims) > 0 {
		t.Errorf("got %+v", v)
	}
	// All are about to launch theirs.
	for _, kind := range []tape.Act{tape.ActFinalize, tape.ActDestroy} {
		if verdicts, _ := verdict.Diagnose(newJob(4).with(grouped(kind, s6), seq(4)...)); len(verdicts) > 0 {
			t.Errorf("%s: got %+v", kind, verdicts)
		}
	}
	j := split().with(grouped(tape.ActSplit, s6), seq(4)...)
	if verdicts, _ := verdict.Diagnose(j); len(verdicts) > 0 {
		t.Errorf("got %+v", verdicts)
	}
	// But not for minutes. For operations, it isn't known whether NCCL is still launching them.
	const long = 3 * time.Minute
	for _, c := range []struct {
		job      job
		culprits int
		want     string
	}{
		{
			newJob(4).in(world, 4, lifecycle.CallSplit, long, -1, 0, seq(4)...).
				with(grouped(tape.ActSplit, long), seq(4)...),
			4, `ranks 0 to 3 began a split of "world" 3m0s ago, and it is not launched: its group has not ended`,
		},
		{
			newJob(4).in(world, 7, allReduce, long, -1, 0, seq(4)...).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Counted, s.Enqueues = true, true }, seq(4)...),
			0, `all_reduce 7 on "world" does not complete, and the cause is not known: all ranks have called it, and ` +
				`none has launched it: their groups have not ended, or NCCL is still at it`,
		},
	} {
		verdicts, _ := verdict.Diagnose(c.job)
		if len(verdicts) != 1 || len(verdicts[0].Culprits) != c.culprits ||
			!strings.HasSuffix(verdicts[0].Text.String(), c.want) {
			t.Errorf("got %+v; want %s", verdicts, c.want)
		}
	}
}

// TestLingers: a rank in an act that others have completed waits for no rank there.
func TestLingers(t *testing.T) {
	j := newJob(4).in(world, 1, allReduce, s6, -1, 0, 0, 2, 3).with(act(tape.ActInit, 9*time.Second, true), 1)
	alone(t, j, 1)
	// After a split, it has no communicator in which the others wait for it.
	j = newJob(4).did(world, 4, lifecycle.CallSplit, 9*time.Second, 0, 2, 3).
		in(world, 4, lifecycle.CallSplit, 9*time.Second, -1, 0, 1).with(act(tape.ActSplit, 9*time.Second, true), 1).
		comm("half", 0, 1).in("half", 1, allReduce, s6, -1, 0, 0)
	j[1].Slots[0].Acts[0].Child = j[1].Slots[1].Comm
	j[1].Slots = j[1].Slots[:1]
	if v := alone(t, j, 1); v.Reason != verdict.NotEntered ||
		!strings.Contains(v.Text.String(), `it is still in a split of "world", which others have completed`) {
		t.Errorf("%s: %s", v.Reason, v.Text)
	}
}

// begins adds a communicator of these ranks: the first n are in its init, and the others have not come.
func (j job) begins(name string, n int, ranks ...int) job {
	j.comm(name, ranks...)
	for i, r := range ranks {
		s := j.slot(r, name)
		if i >= n {
			j[r].Slots = j[r].Slots[:len(j[r].Slots)-1]
			continue
		}
		s.State = lifecycle.StateInitializing
		s.Acts = []verdict.OpenAct{{Act: tape.ActInit, Age: s6, Stalled: true}}
	}
	return j
}

// root makes a communicator one without a parent.
func (j job) root(name string) job {
	for r := range j {
		j.slot(r, name).Parent = lifecycle.CommID{}
	}
	return j
}

// TestAbsentInOrder: where the known ranks of a communicator are in the job's order, that tells which of the others may
// not have come to its init. This is a guess, and none is made if a communicator of the job has another order.
func TestAbsentInOrder(t *testing.T) {
	guess := `who is absent is a guess by the job's order, in which the known ranks of "sub" are`
	v := alone(t, newJob(4).begins("sub", 2, 1, 2, 3).root("sub"), 3)
	if v.Confidence != verdict.Likely || v.Evidence[0].String() != guess {
		t.Errorf("%s, %v", v.Confidence, v.Evidence)
	}
	for name, j := range map[string]job{
		"in another order":        newJob(4).begins("sub", 2, 2, 1, 3),
		"another communicator is": newJob(4).comm("back", 3, 2, 1, 0).begins("sub", 2, 1, 2, 3),
		"only one is known":       newJob(4).begins("sub", 1, 1, 2),
	} {
		verdicts, _ := verdict.Diagnose(j.root("sub"))
		if len(verdicts) == 0 || verdicts[0].Reason != verdict.NotJoined || slices.ContainsFunc(verdicts[0].Culprits,
			func(r verdict.Rank) bool { return r.Job >= 0 }) {
			t.Errorf("%s: %+v", name, verdicts)
		}
	}
}

// TestAbsentAfterShrink: a shrink keeps the order of the ranks that it leaves, and that alone tells which rank has not
// come to the child's init.
func TestAbsentAfterShrink(t *testing.T) {
	j := newJob(5).begins("less", 2, 1, 3, 2).with(act(tape.ActShrink, s6, true), 1, 3)
	j.slot(3, "less").Rank = 2
	if v := alone(t, j, 2); v.Reason != verdict.NotJoined || v.Confidence != verdict.Certain {
		t.Errorf("got %+v", v)
	}
}

// A program may number the ranks of a communicator as it likes, also of one that has all of the job.
func TestRenumbered(t *testing.T) {
	for name, c := range map[string]struct {
		job    job
		absent int
	}{
		"all of the job":        {newJob(4).begins("all", 3, 3, 1, 0, 2).root("all"), 2},
		"a child, by its split": {newJob(4).begins("half", 2, 1, 2, 0).with(act(tape.ActSplit, s6, true), 0), 0},
	} {
		t.Run(name, func(t *testing.T) {
			if v := alone(t, c.job, c.absent); v.Reason != verdict.NotJoined || v.Confidence != verdict.Likely {
				t.Errorf("got %+v", v)
			}
		})
	}
	verdicts, _ := verdict.Diagnose(newJob(4).begins("all", 2, 3, 1, 0, 2).root("all").without(2))
	if want := `rank 2 of "all" and rank 3 of "all" have not joined`; len(verdicts) != 1 ||
		!strings.HasPrefix(verdicts[0].Text.String(), want) {
		t.Errorf("one gave no note: %+v, want %q", verdicts, want)
	}
}

// TestFirstOfAProcessIsLate: one of a process's ranks comes before the first one, whose number the launcher gave the
// process.
func TestFirstOfAProcessIsLate(t *testing.T) {
	j := newJob(4).with(act(tape.ActInit, s6, true), seq(4)...)
	j[1].Slots[0].Root = 2
	j[0].Slots = append(j[0].Slots, j[1].Slots[0])
	j[3].Rank = 2
	v := alone(t, job{j[0], j[3]}, 2)
	if v.Reason != verdict.NotJoined || len(v.Victims) != 3 {
		t.Errorf("%s: %s", v.Reason, v.Text)
	}
}

// TestAbortsOneByOne: ranks that have waited abort the communicator, one after the other. They count as having come.
func TestAbortsOneByOne(t *testing.T) {
	j := newJob(4).did(world, 6, allReduce, s6, 2).in(world, 7, allReduce, s6, -1, 0, 3).
		did(world, 7, allReduce, s6, 0, 1).with(aborted, 0, 1)
	if v := alone(t, j, 2); v.Reason != verdict.NotEntered || v.Confidence != verdict.Certain {
		t.Errorf("%s (%s): %s: %s", v.Reason, v.Confidence, v.Text, v.Evidence)
	}
}

// TestUnresolvedByFailure: calls that failed don't resolve a verdict: the victims' abort may not be seen yet, although
// the end of their calls is.
func TestUnresolvedByFailure(t *testing.T) {
	j := newJob(3).did(world, 6, allReduce, s6, 2).in(world, 7, allReduce, s6, -1, 0, 0, 1)
	v := alone(t, j, 2)
	j.did(world, 7, allReduce, s6, 0, 1)
	if !v.Resolved(j, 0) {
		t.Error("the victims' calls are done, and it is unresolved")
	}
	j.with(func(_ *verdict.Note, s *verdict.Slot) { s.Failed = true }, 0, 1)
	if v.Resolved(j, 0) {
		t.Error("it is resolved by calls that failed")
	}
}

// TestCutShort: the trouble of victims that cut their calls short by an abort is not healed until they make other
// calls.
func TestCutShort(t *testing.T) {
	hang := newJob(3).comm("other", 0, 1, 2).did(world, 6, allReduce, s6, 2).in(world, 7, allReduce, s6, -1, 0, 0, 1)
	v := alone(t, hang, 2)
	late := hang.did(world, 7, allReduce, s6, 0, 1).with(aborted, 0, 1)
	if !v.CutShort(late) || v.Resolved(late, 0) {
		t.Error("it is healed by an abort")
	}
	if !v.CutShort(late.did("other", 3, allReduce, s6, 0)) {
		t.Error("it is healed by an earlier call")
	}
	if v.CutShort(late.did("other", 3, allReduce, time.Second, 0)) {
		t.Error("a rank goes on, and it is not over")
	}
	if v.CutShort(hang.with(fate(verdict.Departed, time.Second, ""), 0, 1)) {
		t.Error("they have ended, and it is not over")
	}
}
