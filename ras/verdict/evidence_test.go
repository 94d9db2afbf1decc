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

// TestEvidenceAgrees: the evidence doesn't deny what the text says: a rank that has launched a call is not between its
// calls, and a rank that has completed a call has come to it.
func TestEvidenceAgrees(t *testing.T) {
	for name, c := range map[string]struct {
		job        job
		text, also string
	}{
		"a call was launched on a busy stream": {
			newJob(4).in(world, 41, allReduce, s6, -1, 0, seq(4)...).with(onStream, 0, 1, 3).with(queued, 2).
				with(func(n *verdict.Note, _ *verdict.Slot) { n.Where = "it computes" }, 2),
			`rank 2 (node1, pid 1002) launched`, `rank 2 has returned from the call: it computes`,
		},
		"a call was canceled after SIGTERM": {
			newJob(3).in(world, 8, allReduce, s6, -1, 0, 0, 2).did(world, 7, allReduce, 7*time.Second, 1).
				with(func(n *verdict.Note, _ *verdict.Slot) { n.Terminated = 4 * time.Second }, 1),
			`rank 1 (node0, pid 1001) has not entered`, `rank 1 was told to end by SIGTERM 4s ago`,
		},
		"its process closed its runtime, and may still run": {
			newJob(3).in(world, 8, allReduce, s6, -1, 0, 0, 2).did(world, 7, allReduce, 7*time.Second, 1).
				with(fate(verdict.Departed, 4*time.Second, ""), 1).with(func(n *verdict.Note, s *verdict.Slot) {
				aborted(n, s)
				s.Left.Site = "train.go:9"
			}, 1),
			`rank 1 (node0, pid 1001) aborted "world" 5s ago (at train.go:9)`,
			`the process of rank 1 left the job 4s ago`,
		},
		"one came when the others had given up, and completed the call": {
			newJob(3).comm("pp", 0, 1).in(world, 8, allReduce, s6, 1, s5, 0, 2).with(
				func(n *verdict.Note, s *verdict.Slot) {
					gaveUp(n, s)
					s.Age, s.Failure.Code, s.Failure.Wait = 3*time.Second, lifecycle.CodeAbandoned, 1
					s.Failure.Age = s.Age
				}, 0, 2).did(world, 8, allReduce, 2*time.Second, 1).in("pp", 3, allReduce, time.Second, -1, 0, 1).
				with(func(n *verdict.Note, _ *verdict.Slot) { n.Where = "it sleeps" }, 1),
			`rank 1 (node0, pid 1001) had not entered all_reduce 8 on "world" when it failed, 3s ago; it came 2s ago`,
			`2 of 3 ranks were in all_reduce 8 on "world"`,
		},
		"one is through": {
			newJob(3).in(world, 8, lifecycle.CallBroadcast, 3*time.Minute, -1, 0, 1, 2).with(onStream, 1, 2).
				did(world, 8, lifecycle.CallBroadcast, 3*time.Minute, 0),
			`all ranks have launched it`, `2 of 3 ranks are still in broadcast 8 on "world", the first for 3m0s`,
		},
		"none is through": {
			newJob(3).in(world, 8, allReduce, 3*time.Minute, -1, 0, seq(3)...).with(onStream, seq(3)...),
			`all ranks have launched it`, `3 of 3 ranks are in all_reduce 8 on "world", the first for 3m0s`,
		},
		"a late call beside a group that is not ended": {
			newJob(2).in(world, 8, allReduce, s6, -1, 0, 0).in(world, 8, lifecycle.CallBarrier, time.Second, -1, 0, 1).
				with(opensGroup(2*time.Second), 1),
			`rank 1 (node1, pid 1001) has a group that has been open for 2s (started at train.go:7): call GroupEnd; ` +
				`until then its calls are not made, and it has made other calls on "world"; rank 0 waits`,
			`rank 1 (node1, pid 1001) made a different call than the others as number 8 on "world": rank 0: ` +
				`all_reduce of float32, 4096 bytes; rank 1: barrier`,
		},
		"a message before it was not received": {
			line(9).in(world, 9, allReduce, s5, -1, 0, seq(4)...).with(reached, seq(4)...).
				with(func(_ *verdict.Note, s *verdict.Slot) {
					s.Messages[2] = model.Messages{Sent: 9, Received: 8}
				}, 1),
			`all ranks have launched it`, `rank 1 has not called recv for message 9 from rank 2 on "world"`,
		},
	} {
		verdicts, _ := verdict.Diagnose(c.job)
		between := func(e verdict.Text) bool { return strings.Contains(e.String(), "between its calls") }
		if len(verdicts) == 1 && slices.ContainsFunc(verdicts[0].Evidence, between) {
			t.Errorf("%s: %v says that the rank is between its calls", name, verdicts[0].Evidence)
		}
		if len(verdicts) != 1 || !strings.Contains(verdicts[0].Text.String(), c.text) ||
			!slices.ContainsFunc(verdicts[0].Evidence, func(e verdict.Text) bool { return e.String() == c.also }) {
			t.Errorf("%s: %v, want %q, and as evidence %q", name, verdicts, c.text, c.also)
		}
	}
}

// The evidence says what keeps a rank from sending.
func TestEvidenceOfWhatBlocks(t *testing.T) {
	for phase, want := range map[tape.Phase]string{
		tape.PhaseTransfer: "rank 0 has waited for rank 1 for 7s",
		tape.PhaseCredit:   "rank 0 has waited for rank 1 for 7s, which takes no more of what it was sent",
		tape.PhaseNetwork:  "rank 0 has waited for rank 1 for 7s: the network takes no more",
		tape.PhasePool:     "rank 0 has waited for rank 1 for 7s: no operation is free in the proxy's pool",
	} {
		j := newJob(2).in(world, 8, allReduce, 9*time.Second, 1, 7*time.Second, 0).
			in(world, 8, allReduce, 9*time.Second, 0, 6*time.Second, 1).
			with(func(_ *verdict.Note, s *verdict.Slot) { s.Phase = phase }, 0)
		verdicts, _ := verdict.Diagnose(j)
		if len(verdicts) != 1 || len(verdicts[0].Evidence) == 0 || verdicts[0].Evidence[0].String() != want {
			t.Errorf("in phase %v it is %v", phase, verdicts)
		}
	}
}

// TestStreamsAndNetwork: all ranks have launched an operation, and for some it isn't known what their streams wait for.
// A rank whose data the network doesn't take is the cause; a rank that waits for data isn't, as the sender's device may
// not have come to it.
func TestStreamsAndNetwork(t *testing.T) {
	hang := func(age time.Duration, phase tape.Phase) job {
		on := func(phase tape.Phase) func(*verdict.Note, *verdict.Slot) {
			return func(_ *verdict.Note, s *verdict.Slot) { s.Phase = phase }
		}
		return newJob(4).in(world, 8, allReduce, age, -1, 0, 0, 3).with(on(tape.PhaseStream), 0, 3).
			in(world, 8, allReduce, age, 2, age-time.Second, 1).with(on(phase), 1).
			in(world, 8, allReduce, age, 1, age, 2).with(on(tape.PhaseStream), 2)
	}
	for _, c := range []struct {
		phase tape.Phase
		age   time.Duration
		want  string
	}{
		{tape.PhaseNetwork, 9 * time.Second, "transport: all ranks are in all_reduce 8 on \"world\", and no data has " +
			"moved from rank 1 to rank 2 for 8s, over "},
		{tape.PhaseCredit, 9 * time.Second, ""},
		{tape.PhaseCredit, 3 * time.Minute, "all ranks have launched it, and the device has not done it"},
	} {
		verdicts, _ := verdict.Diagnose(hang(c.age, c.phase))
		got := ""
		if len(verdicts) == 1 {
			got = fmt.Sprintf("%v: %v", verdicts[0].Reason, verdicts[0].Text)
			if e := verdicts[0].Evidence; len(e) == 0 ||
				!strings.HasPrefix(e[len(e)-1].String(), "rank 2 has waited for rank 1 for ") {
				t.Errorf("in phase %v, after %v, the evidence is %v", c.phase, c.age, e)
			}
		}
		if len(verdicts) > 1 || (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("in phase %v, after %v, it is %q, want %q", c.phase, c.age, got, c.want)
		}
	}
}

// TestUnnamedGroups: groups of a split without names, as NCCL's are, have one role: a rank that calls them in another
// order is found by what the ranks of the other groups do.
func TestUnnamedGroups(t *testing.T) {
	j := newJob(8)
	for r := range 4 {
		j = j.comm(fmt.Sprint("tp", r), 2*r, 2*r+1)
	}
	for r := range j {
		group := fmt.Sprint("tp", r/2)
		j = j.did(world, 4, allReduce, s6, r).did(group, 5, allReduce, s6, r).in(world, 5, allReduce, s5, -1, 0, r)
	}
	j = j.did(world, 4, allReduce, s6, 2).did("tp1", 4, allReduce, s6, 3).did("tp1", 4, allReduce, s6, 2).
		in("tp1", 5, allReduce, s5, -1, 0, 2)
	for r := range j {
		s := j.slot(r, fmt.Sprint("tp", r/2))
		s.Name, s.Made = "", 1
		j.slot(r, world).Name = ""
		calls := verdict.Trail{{Slot: 1, Seq: 4}, {Slot: 0, Seq: 4}, {Slot: 1, Seq: 5}, {Slot: 0, Seq: 5}}
		switch r {
		case 2:
			calls = calls[:3]
		case 3:
			calls = slices.Delete(calls, 2, 3)
		}
		j[r].Habits = []verdict.Habit{{Root: 1, Trail: calls}}
	}
	verdicts, _ := verdict.Diagnose(j)
	if len(verdicts) != 1 || len(verdicts[0].Culprits) != 1 || verdicts[0].Culprits[0].Job != 3 ||
		!strings.Contains(verdicts[0].Text.String(), "made other calls, or in a different order, than") {
		t.Errorf("it is %v", verdicts)
	}
}

// TestLastCallIsOfTheLane: a rank's last call is that of the goroutine that is missing, not of another one's heartbeat.
func TestLastCallIsOfTheLane(t *testing.T) {
	apart := func(_ *verdict.Note, s *verdict.Slot) { s.Lane = 1 }
	j := newJob(4).comm("beat", 0, 1, 2, 3).did("beat", 9, allReduce, 10*time.Millisecond, 0, 1, 2, 3).
		with(apart, 0, 1, 2, 3).in(world, 41, allReduce, s6, 2, s6, 0, 1, 3).did(world, 40, allReduce, s6, 2)
	verdicts, _ := verdict.Diagnose(j)
	const want = `; its last, all_reduce 40 on "world", ended 6s ago; ranks 0, 1 and 3 wait`
	if len(verdicts) != 1 || !strings.HasSuffix(verdicts[0].Text.String(), want) {
		t.Errorf("got %v, want one that ends with %q", verdicts, want)
	}
}

// TestStepsOfAnotherLane: a rank whose training goes on may come to a call of another goroutine, unless the training of
// those in the call has gone on for whole steps.
func TestStepsOfAnotherLane(t *testing.T) {
	for _, aside := range []bool{false, true} {
		steps := func(n *verdict.Note, s *verdict.Slot) {
			n.Slots[1].Lane, n.Slots[1].Steps = 1, true
			if aside {
				s.Aside = []int{1}
			}
		}
		j := newJob(3).comm("tp", 0, 1, 2).did("tp", 9, allReduce, 10*time.Millisecond, 0, 1, 2).
			with(steps, 0, 1, 2).in(world, 41, allReduce, s6, 2, s6, 0, 1).did(world, 40, allReduce, s6, 2)
		verdicts, soon := verdict.Diagnose(j)
		if len(verdicts) == 1 != aside || soon == aside {
			t.Errorf("with a training that goes on beside the call %t: %v", aside, verdicts)
		}
	}
}

// TestUnseenRankOfAChild: the ranks of a communicator that was made of another one have processes, so they have not
// called for it.
func TestUnseenRankOfAChild(t *testing.T) {
	for name, want := range map[string]string{
		"child": "no process is known to have called for it as these ranks",
		world:   "no known process has these ranks: theirs may not have started",
	} {
		j := newJob(2).comm("child", 0, 1)
		for r := range j {
			s := j.slot(r, name)
			s.Size = 3
			act(tape.ActInit, s6, true)(&j[r], s)
		}
		verdicts, _ := verdict.Diagnose(j)
		if len(verdicts) != 1 || !slices.ContainsFunc(verdicts[0].Evidence, func(e verdict.Text) bool {
			return e.String() == want
		}) {
			t.Errorf("%s: %+v", name, verdicts)
		}
	}
}
