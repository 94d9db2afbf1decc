package verdict_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// What ranks of a job did is in the scenarios of ras/jobsim, which are played through notes, agents and tapes. Here are
// notes that no simulated job writes: of processes that don't answer, of engines that do otherwise, and of moments in
// between.

// job is the notes of a job, by rank, all of whose ranks are in world and at rest.
type job []verdict.Note

const world = "world"

func newJob(ranks int) job {
	j := make(job, ranks)
	for r := range j {
		host := fmt.Sprintf("node%d", 2*r/ranks)
		j[r] = verdict.Note{
			Member: fmt.Sprintf("%s-%d", host, 1000+r), Host: host, PID: 1000 + r, Rank: r, JobSize: ranks,
		}
	}
	return j.comm(world, seq(ranks)...)
}

func seq(n int) []int {
	ranks := make([]int, n)
	for r := range ranks {
		ranks[r] = r
	}
	return ranks
}

// comm adds a communicator of these ranks.
func (j job) comm(name string, ranks ...int) job {
	for i, r := range ranks {
		s := verdict.Slot{Name: name, Rank: i, Size: len(ranks), Root: 1, Job: r, State: lifecycle.StateReady, Wait: -1}
		copy(s.Comm[:], name)
		if name != world {
			copy(s.Parent[:], world)
		}
		j[r].Slots = append(j[r].Slots, s)
	}
	return j
}

// slot is a rank's in a communicator, or nobody's if it has none.
func (j job) slot(r int, comm string) *verdict.Slot {
	i := slices.IndexFunc(j[r].Slots, func(s verdict.Slot) bool { return s.Name == comm })
	if i < 0 {
		return &verdict.Slot{}
	}
	return &j[r].Slots[i]
}

func signature(call lifecycle.Call) tape.Signature {
	s := tape.Signature{Call: call, Peer: -1}
	if call == lifecycle.CallAllReduce {
		s.DataType, s.Bytes = uint8(kernels.Float32), 4096
	}
	return s
}

// in puts ranks into a call that has stalled; they wait for a rank of the communicator, if it isn't -1.
func (j job) in(comm string, n uint64, call lifecycle.Call, age time.Duration, wait int, waited time.Duration,
	ranks ...int,
) job {
	for _, r := range ranks {
		s := j.slot(r, comm)
		s.InFlight, s.Seq, s.Op, s.Age, s.Stalled, s.Wait, s.WaitAge = 1, n, signature(call), age, true, wait, waited
		s.Begun, s.Done = n, n-1
	}
	return j
}

// did makes it the last call of ranks, which ended so long ago.
func (j job) did(comm string, n uint64, call lifecycle.Call, ago time.Duration, ranks ...int) job {
	for _, r := range ranks {
		s := j.slot(r, comm)
		s.InFlight, s.Seq, s.Op, s.Age, s.Stalled, s.Wait, s.WaitAge = 0, n, signature(call), ago, false, -1, 0
		s.Begun, s.Done = n, n
	}
	return j
}

// with changes notes.
func (j job) with(change func(n *verdict.Note, s *verdict.Slot), ranks ...int) job {
	for _, r := range ranks {
		change(&j[r], j.slot(r, world))
	}
	return j
}

// pxn puts a rank onto one of the rails of its node, of which there are two.
func pxn(n *verdict.Note, s *verdict.Slot) {
	s.Locals, s.Node, s.Local = n.JobSize/2, 2*s.Rank/n.JobSize, s.Rank%(n.JobSize/2)
}

// messageBetween03 makes the call that a rank is in one with the other of ranks 0 and 3.
func messageBetween03(_ *verdict.Note, s *verdict.Slot) { s.Op.Peer = int32(3 - s.Rank) }

// without is the job as it looks when some give no note.
func (j job) without(ranks ...int) job {
	return slices.DeleteFunc(slices.Clone(j), func(n verdict.Note) bool { return slices.Contains(ranks, n.Rank) })
}

func act(kind tape.Act, age time.Duration, stalled bool) func(*verdict.Note, *verdict.Slot) {
	return func(_ *verdict.Note, s *verdict.Slot) {
		s.Acts = append(s.Acts, verdict.OpenAct{Act: kind, Age: age, Stalled: stalled})
		if kind == tape.ActInit {
			s.State = lifecycle.StateInitializing
		}
	}
}

func fate(f verdict.Fate, age time.Duration, cause string) func(*verdict.Note, *verdict.Slot) {
	return func(n *verdict.Note, _ *verdict.Slot) { n.Fate, n.FateAge, n.Cause = f, age, cause }
}

// told is the end of a process by a signal that asks for it.
func told(age time.Duration) func(*verdict.Note, *verdict.Slot) {
	return func(n *verdict.Note, _ *verdict.Slot) {
		n.Fate, n.FateAge, n.Cause, n.Told = verdict.Dead, age, "it was ended by SIGTERM", true
	}
}

// splits puts rank 2 into the init of a half of the world, and rank 3 into the split that makes it.
func splits(j job) job {
	in := act(tape.ActSplit, s6, true)
	in(&j[2], j.slot(2, world))
	in(&j[3], j.slot(3, world))
	for i := range j {
		for k := range j[i].Slots[0].Acts {
			j[i].Slots[0].Acts[k].Seq = 1
		}
	}
	j[2].Slots = append(j[2].Slots, verdict.Slot{
		Comm: [16]byte{'h'}, Parent: j[2].Slots[0].Comm, Name: "half", Rank: 1, Size: 2, Root: 1, Job: 2, Wait: -1,
		Acts: []verdict.OpenAct{{Act: tape.ActInit, Age: s6, Stalled: true}},
	})
	return j
}

func renamed(_ *verdict.Note, s *verdict.Slot) { s.Was, s.Comm = s.Comm, lifecycle.CommID{'r'} }

func silent(n *verdict.Note, _ *verdict.Slot) { n.Slots = nil }

// contained is a process in a container, as the agent of its machine tells of it.
func contained(n *verdict.Note, _ *verdict.Slot) {
	n.Host, n.Machine = fmt.Sprint("pod-", n.Rank), n.Host
}

func gaveUp(n *verdict.Note, s *verdict.Slot) {
	s.InFlight, s.Failed, s.State, s.Age, s.Took = 0, true, lifecycle.StateFailed, time.Millisecond, s.Age
	s.Failure = &verdict.Failure{
		Code: lifecycle.CodeRevoked, Call: s.Op.Call, Seq: s.Seq, Peer: -1, Wait: -1, Age: s.Age,
	}
}

// queued is a rank whose stream has not come to its call; its program has gone on to later ones.
func queued(_ *verdict.Note, s *verdict.Slot) {
	s.Phase = tape.PhaseQueued
	s.InFlight, s.Begun = 3, s.Seq+2
}

func aborted(_ *verdict.Note, s *verdict.Slot) { s.Left = &verdict.Left{Act: tape.ActAbort, Age: s5} }

func captured(_ *verdict.Note, s *verdict.Slot) { s.Captured = 3 }

func notStalled(_ *verdict.Note, s *verdict.Slot) { s.Stalled = false }

func onStream(_ *verdict.Note, s *verdict.Slot) { s.Phase = tape.PhaseStream }
func reached(_ *verdict.Note, s *verdict.Slot)  { s.Phase, s.Reached = tape.PhaseStream, true }

func failed(code lifecycle.Code, peer int) func(*verdict.Note, *verdict.Slot) {
	return func(n *verdict.Note, s *verdict.Slot) {
		gaveUp(n, s)
		s.Failure.Code, s.Failure.Peer = code, peer
	}
}

func waited(rank int, sum time.Duration, ops int, window time.Duration) func(*verdict.Note, *verdict.Slot) {
	return func(_ *verdict.Note, s *verdict.Slot) {
		s.Waited, s.Window = append(s.Waited, model.Wait{Rank: int32(rank), Time: int64(sum), Ops: ops}), window
	}
}

const (
	allReduce = lifecycle.CallAllReduce
	s5        = 5 * time.Second
	s6        = 6 * time.Second
)

// grows is a job of which some are in a grow of world.
func grows(ranks int, in ...int) job {
	return newJob(ranks).did(world, 2, allReduce, s6, seq(ranks)...).
		in(world, 3, lifecycle.CallGrow, s6, -1, 0, in...).with(act(tape.ActGrow, s6, true), in...)
}

// joined adds a process that joins a communicator of that size, which the others know by another id.
func joined(j job, size, rank int) job {
	s := verdict.Slot{
		Comm: [16]byte{'g'}, Name: "grown", Rank: rank, Size: size, Root: 1, Job: rank, Wait: -1,
		State: lifecycle.StateInitializing,
		Acts:  []verdict.OpenAct{{Act: tape.ActInit, Age: s6, Stalled: true, Joins: true}},
	}
	return append(j, verdict.Note{
		Member: fmt.Sprint("node2-", 1000+rank), Host: "node2", PID: 1000 + rank, Rank: rank, JobSize: j[0].JobSize,
		Slots: []verdict.Slot{s},
	})
}

// pipelines is a job of two pipelines of five stages. The last stage of the second one sends a message that the stage
// before it has forgotten in one of its groups; the first stage waits for the last one, and the others for the first.
func pipelines() job {
	j := newJob(10).comm("pp0", seq(5)...).comm("pp1", 5, 6, 7, 8, 9).comm("embed", 5, 9).
		in("embed", 1, allReduce, s5, 1, s5, 5)
	message := func(r int, call lifecycle.Call, peer int) {
		s := j.slot(r, "pp1")
		s.InFlight, s.Seq, s.Op, s.Age, s.Stalled, s.Wait = 1, 20, tape.Signature{Call: call}, s5, true, peer
		s.Op.Peer = int32(peer)
	}
	for stage := range 5 {
		for _, s := range []*verdict.Slot{j.slot(stage, "pp0"), j.slot(5+stage, "pp1")} {
			s.Groups, s.Messages = 19, map[int32]model.Messages{}
			for _, peer := range []int{stage - 1, stage + 1} {
				if peer >= 0 && peer < 5 {
					s.Messages[int32(peer)] = model.Messages{Sent: 20, Received: 20}
				}
			}
		}
		if stage > 0 && stage < 4 {
			message(5+stage, lifecycle.CallRecv, stage-1)
		}
	}
	message(9, lifecycle.CallSend, 3)
	return j
}

func TestNotes(t *testing.T) {
	hang := func() job {
		return newJob(4).in(world, 41, allReduce, s6, 2, s6, 0, 1, 3).did(world, 40, allReduce, s6, 2)
	}
	for _, c := range []struct {
		name string
		job  job
		want []string // beginnings of "reason (confidence) text"
	}{
		{
			"one gave no note, and is not known dead: no guess", newJob(8).comm("half", 0, 1, 2, 3).in("half",
				12, allReduce, s6, 3, s6, 0, 1, 2).without(3),
			[]string{
				`unknown (possible) all_reduce 12 on "half" does not complete, and the cause is not known: ` +
					`nothing is known of rank 3 of "half"`,
			},
		},
		{
			"a mismatch is reported, and the note of the rank that it names is older",
			newJob(4).in(world, 7, lifecycle.CallSendRecv, time.Second, 1, 0, 2).
				with(failed(lifecycle.CodeMismatch, 1), 2),
			nil,
		},
		{
			"a mismatch is reported, and the rank that it names has no note",
			newJob(4).in(world, 7, lifecycle.CallSendRecv, time.Second, 1, 0, 2).
				with(failed(lifecycle.CodeMismatch, 1), 2).without(1),
			nil,
		},
		{
			"all have come to the init of a world, and some have not learned yet which id it has in this run",
			newJob(4).with(act(tape.ActInit, s6, true), 0, 1, 2).with(renamed, 0, 3),
			nil,
		},
		{
			"one is in the init of what a split made, and the note of another is from before it came to the split",
			splits(newJob(4)),
			nil,
		},
		{
			"one fails in a call, and others that had failed, which is not known, destroy the communicator later",
			newJob(4).in(world, 7, allReduce, time.Second, 1, time.Second, 0).
				with(failed(lifecycle.CodePeerAborted, 1), 0).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Age, s.Failure.Age = 5*time.Second, 5*time.Second }, 0).
				with(func(_ *verdict.Note, s *verdict.Slot) {
					s.Left = &verdict.Left{Act: tape.ActDestroy, Age: time.Second}
				}, 2, 3).
				with(func(_ *verdict.Note, s *verdict.Slot) {
					s.Left = &verdict.Left{Act: tape.ActAbort, Age: 5100 * time.Millisecond}
				}, 1),
			[]string{`not_entered (likely) rank 1 (node0, pid 1001) aborted "world"`},
		},
		{
			"one of a ring of groups of messages waits for a rank that has made a later group",
			newJob(5).in(world, 9, lifecycle.CallGroupEnd, s6, 2, s6, 1).
				in(world, 10, lifecycle.CallGroupEnd, s6, 4, s6, 2, 3).
				in(world, 10, lifecycle.CallGroupEnd, s6, 1, s6, 0, 4).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Groups = s.Seq }, 0, 1, 2, 3, 4),
			[]string{"deadlock (likely) ranks 1 and 2 made calls that do not match those of the others"},
		},
		{
			"all but one of the job are in the init of what grows, and that one, which had left its parent, is stopped",
			newJob(4).with(act(tape.ActInit, s6, true), 0, 1, 2).
				with(func(_ *verdict.Note, s *verdict.Slot) { copy(s.Parent[:], "small") }, 0, 1, 2).
				with(fate(verdict.Stopped, s6, ""), 3).
				with(func(_ *verdict.Note, s *verdict.Slot) {
					s.Comm, s.Left = [16]byte{'o'}, &verdict.Left{Act: tape.ActDestroy, Age: 2 * s6}
				}, 3),
			[]string{`rank_stopped (likely) rank 3 (node1, pid 1003) stopped 6s ago; ranks 0 to 2 wait`},
		},
		{
			"stages of two pipelines are in step but for what was in their groups, and nothing is known of the ends",
			pipelines(),
			[]string{"deadlock (certain) ranks 5 to 9 wait for each other: rank 5 is in all_reduce 1"},
		},
		{
			"one destroys a communicator, and another learns of it by the end of a process that failed because of it",
			newJob(4).in(world, 7, allReduce, s5, -1, 0, 0, 1, 2).with(failed(lifecycle.CodePeerAborted, 3), 0, 1).
				with(failed(lifecycle.CodeRankDead, 1), 2).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Age, s.Failure.Age = time.Second/2, time.Second/2 }, 2).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Failure.Age = time.Second }, 0, 1).
				with(fate(verdict.Dead, time.Second/2, "it exited with 1"), 1).
				with(func(_ *verdict.Note, s *verdict.Slot) {
					s.Left = &verdict.Left{Act: tape.ActDestroy, Age: 2 * time.Second}
				}, 3),
			[]string{`not_entered (certain) rank 3 (node1, pid 1003) destroyed "world" 2s ago`},
		},
		{
			"three are in an all-reduce, and the engine names one in messages; for whom it waits isn't known",
			newJob(4).in(world, 7, allReduce, s5, -1, 0, 0, 1, 2).in(world, 9, lifecycle.CallGroupEnd, s5, -1, 0, 3).
				with(failed(lifecycle.CodeMismatch, 3), 0, 1, 2, 3),
			[]string{
				`mismatch (likely) the ranks made calls on "world" that do not match, and it is not known which is ` +
					`wrong: rank 0 was in all_reduce 7`,
			},
		},
		{
			"the same, and it is in a group more than the others have made: it left out the all-reduce",
			newJob(4).in(world, 7, allReduce, s5, -1, 0, 0, 1, 2).in(world, 9, lifecycle.CallGroupEnd, s5, -1, 0, 3).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Groups = 8 }, 0, 1, 2).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Groups = 9 }, 3).
				with(failed(lifecycle.CodeMismatch, 3), 0, 1, 2, 3),
			[]string{`mismatch (likely) rank 3 (node1, pid 1003) made a call on "world" that does not match`},
		},
		{
			"the same, and it waited for rank 1",
			newJob(4).in(world, 7, allReduce, s5, -1, 0, 0, 1, 2).in(world, 9, lifecycle.CallGroupEnd, s5, -1, 0, 3).
				with(failed(lifecycle.CodeMismatch, 3), 0, 1, 2, 3).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Failure.Wait = 1 }, 3),
			[]string{
				`mismatch (likely) ranks 1 and 3 made calls on "world" that do not match, and it is not known which ` +
					`is wrong`,
			},
		},
		{
			"a group of messages meets an all-reduce: messages of groups are not counted, so that none is left out",
			newJob(4).in(world, 1, allReduce, s5, -1, 0, 1, 2, 3).in(world, 2, lifecycle.CallGroupEnd, s5, -1, 0, 0).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Groups = 2 }, 0, 1, 2, 3).
				with(failed(lifecycle.CodeMismatch, 1), 0, 2, 3).with(failed(lifecycle.CodeMismatch, 0), 1).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Failure.Wait = 1 }, 0),
			[]string{
				`mismatch (likely) ranks 0 and 1 made calls on "world" that do not match, and it is not known which ` +
					`is wrong`,
			},
		},
		{
			"the two ranks of a communicator are in groups of messages that differ, and the engine names one",
			newJob(2).in(world, 2, lifecycle.CallGroupEnd, s5, -1, 0, 0, 1).
				with(failed(lifecycle.CodeMismatch, 0), 0, 1),
			[]string{
				`mismatch (likely) ranks 0 and 1 made calls on "world" that do not match, and it is not known which ` +
					`is wrong`,
			},
		},
		{
			"a rank that ended the communicator has no note yet",
			newJob(2).in(world, 7, allReduce, time.Second, 1, 0, 0).with(failed(lifecycle.CodePeerAborted, 1), 0).
				without(1),
			nil,
		},
		{
			"a rank that gave up has no note yet",
			newJob(2).in(world, 7, allReduce, time.Second, 1, 0, 0).with(failed(lifecycle.CodeAbandoned, 1), 0).
				without(1),
			nil,
		},
		{
			"one is alive, and its tape can't be read",
			hang().with(silent, 2).with(func(n *verdict.Note, _ *verdict.Slot) { n.Stale = true }, 2),
			[]string{
				`unknown (possible) all_reduce 41 on "world" does not complete, and the cause is not known: the ` +
					`tape of rank 2 cannot be read`,
			},
		},
		{
			"their communicator has another order than the job, which a launcher numbers",
			newJob(3).in(world, 7, allReduce, s6, -1, 0, 1, 2).with(func(n *verdict.Note, s *verdict.Slot) {
				s.Rank = 2 - n.Rank
				s.Job = s.Rank
			}, 0, 1, 2),
			[]string{
				`not_entered (certain) rank 0 (node0, pid 1000) has not entered all_reduce 7 on "world", nor any ` +
					`collective from number 1 on; it has made no call on any communicator yet; ranks 1 and 2 wait`,
			},
		},
		{
			"all have left, and one of them never came",
			newJob(4).in(world, 7, allReduce, s6, -1, 0, 0, 1, 2).with(fate(verdict.Departed, s5, ""), seq(4)...),
			[]string{
				`rank_dead (certain) rank 3 (node1, pid 1003) left the job 5s ago, and has not entered all_reduce 7 ` +
					`on "world"; ranks 0 to 2 waited, and have ended`,
			},
		},
		{
			"one has left in the middle of it",
			newJob(4).in(world, 7, allReduce, s6, -1, 0, seq(4)...).with(fate(verdict.Departed, s5, ""), 2),
			[]string{
				`rank_dead (certain) rank 2 (node1, pid 1002) left the job 5s ago, in the middle of all_reduce 7 on ` +
					`"world"; ranks 0, 1 and 3 wait`,
			},
		},
		{
			"one has left in the middle of it, and nothing is known of others",
			newJob(2).in(world, 7, allReduce, s6, -1, 0, 0, 1).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Size = 4 }, 0, 1).
				with(fate(verdict.Departed, s5, ""), 1),
			[]string{
				`unknown (possible) all_reduce 7 on "world" does not complete, and the cause is not known: nothing ` +
					`is known of ranks 2 and 3 of "world"`,
				`rank_dead (certain) rank 1 (node1, pid 1001) left the job 5s ago, in the middle of all_reduce 7 on ` +
					`"world"; rank 0 waits`,
			},
		},
		{
			"one has left as soon as it had come, and one has not come",
			newJob(4).in(world, 7, allReduce, s6, -1, 0, 0, 1, 2).with(fate(verdict.Departed, s6, ""), 1),
			[]string{
				`not_entered (certain) rank 3 (node1, pid 1003) has not entered all_reduce 7 on "world", nor any ` +
					`collective from number 1 on; it has made no call on any communicator yet; ranks 0 and 2 wait; ` +
					`rank 1 waited, and has ended`,
				`rank_dead (certain) rank 1 (node0, pid 1001) left the job 6s ago, in the middle of all_reduce 7 on ` +
					`"world"; ranks 0 and 2 wait`,
			},
		},
		{
			"two of a host left together, and nobody reads their tapes",
			newJob(4).in(world, 7, allReduce, s6, -1, 0, 0, 1).with(silent, 2, 3).
				with(fate(verdict.Departed, s6, ""), 2, 3),
			[]string{
				`unknown (possible) ranks 2 and 3 of host node1 ended together 6s ago, and which was first is not ` +
					`known: no process of that host is left to read their tapes; ranks 0 and 1 wait`,
			},
		},
		{
			"they are in containers of one machine",
			newJob(4).in(world, 7, allReduce, s6, -1, 0, 0, 1).with(silent, 2, 3).with(contained, 2, 3).
				with(fate(verdict.Departed, s6, ""), 2, 3),
			[]string{
				`unknown (possible) ranks 2 and 3 of host node1 ended together 6s ago, and which was first is not ` +
					`known: no process of that host is left to read their tapes; ranks 0 and 1 wait`,
			},
		},
		{
			"two containers of a machine are out of reach",
			hang().with(contained, 2, 3).with(fate(verdict.Unreachable, s6, ""), 2, 3),
			[]string{
				`rank_unreachable (certain) ranks 2 and 3 of host node1 stopped answering 6s ago`,
			},
		},
		{
			"one left, by whom a message of two others failed",
			newJob(4).in(world, 7, lifecycle.CallSend, time.Second, 3, 0, 0).in(world, 7, lifecycle.CallRecv,
				time.Second, 0, 0, 3).with(messageBetween03, 0, 3).with(notStalled, 0, 3).
				with(failed(lifecycle.CodePeerAborted, 2), 0, 3).with(silent, 2).
				with(fate(verdict.Departed, s6, ""), 2),
			[]string{`rank_dead (likely) rank 2 (node1, pid 1002) left the job 6s ago; ranks 0 and 3 wait`},
		},
		{
			"nothing is known of one at the first init",
			newJob(4).with(silent, 2, 3).with(act(tape.ActInit, 12*time.Second, true), 0, 1).without(3),
			[]string{
				`not_joined (certain) rank 2 (node1, pid 1002) has not joined the init of "world"; it has made no ` +
					`call on any communicator yet; ranks 0 and 1 wait`,
				`not_joined (likely) rank 3 never arrived at the init of "world"; ranks 0 and 1 wait`,
			},
		},
		{
			"one has not read yet what its rank in the child of a split is",
			newJob(3).comm("pair", 0, 1).in(world, 4, lifecycle.CallSplit, s6, -1, 0, 1).
				did(world, 4, lifecycle.CallSplit, s6, 0, 2).with(act(tape.ActSplit, s6, true), 1).
				with(func(n *verdict.Note, _ *verdict.Slot) {
					s := &n.Slots[1]
					s.State, s.Acts = lifecycle.StateInitializing, []verdict.OpenAct{
						{Act: tape.ActInit, Age: s6, Stalled: true},
					}
					if n.Rank == 1 {
						s.Rank = -1
					}
				}, 0, 1),
			nil,
		},
		{
			"those that are to join have not come", grows(2, 0, 1),
			[]string{`not_joined (likely) a grow of "world" waits for joining ranks that have not arrived; ` +
				`ranks 0 and 1 wait`},
		},
		{
			"one of two has come, and knows the others by no id", joined(grows(2, 0, 1), 4, 2),
			[]string{`not_joined (likely) a grow of "world" waits for joining ranks that have not arrived; ` +
				`ranks 0 to 2 wait`},
		},
		{"all have come: slow, and nobody's fault", joined(joined(grows(2, 0, 1), 4, 2), 4, 3), nil},
		{
			"one has come, and a rank stays away from the grow", joined(grows(3, 0, 2), 4, 3),
			[]string{`not_joined (certain) rank 1 (node0, pid 1001) has not joined a grow of "world"; its last, ` +
				`all_reduce 2 on "world", ended 6s ago; ranks 0, 2 and 3 wait`},
		},
		{
			"one has come, and nobody grows", joined(newJob(2), 3, 2),
			[]string{`not_joined (certain) ranks 0 and 1 have not joined the init of "grown"; rank 2 waits`},
		},
		{
			"a dead one left no tape", newJob(4).in(world, 41, allReduce, s6, 2, s6, 0, 1, 3).with(silent,
				2).with(fate(verdict.Dead, 3*time.Millisecond, "it was ended by SIGKILL"), 2),
			[]string{
				`rank_dead (likely) rank 2 (node1, pid 1002) ended 3ms ago: it was ended by SIGKILL; ` +
					`ranks 0, 1 and 3 wait`,
			},
		},
		{
			"a stream is busy, and the program has gone on",
			newJob(4).in(world, 41, allReduce, s6, -1, 0, seq(4)...).with(onStream, 0, 1, 3).with(queued, 2),
			[]string{
				`stream_blocked (certain) rank 2 (node1, pid 1002) launched all_reduce 41 on "world" 6s ago, and the ` +
					`stream of its device is busy with earlier work; ranks 0, 1 and 3 wait`,
			},
		},
		{
			"a stream is busy, maybe with a graph",
			newJob(4).in(world, 41, allReduce, s6, -1, 0, seq(4)...).with(onStream, 0, 1, 3).with(queued, 2).with(
				captured, 2),
			[]string{`stream_blocked (likely) rank 2 (node1, pid 1002) launched all_reduce 41 on "world" 6s ago`},
		},
		{
			"a stream is busy, and others have not launched",
			newJob(4).in(world, 41, allReduce, s6, -1, 0, 0, 1, 2).with(onStream, 0, 1).with(queued, 2).did(world, 40,
				allReduce, s6, 3),
			[]string{
				`stream_blocked (certain) rank 2`,
				`not_entered (certain) rank 3`,
			},
		},
		{
			"what a rank does meanwhile is evidence", hang().with(func(n *verdict.Note, _ *verdict.Slot) {
				n.Where = "reading a file"
			}, 2),
			[]string{
				`not_entered (certain) rank 2 (node1, pid 1002) has not entered all_reduce 41 on "world"; its last, ` +
					`all_reduce 40 on "world", ended 6s ago; ranks 0, 1 and 3 wait`,
			},
		},
		{
			"others have launched more calls since, on their streams",
			hang().with(func(_ *verdict.Note, s *verdict.Slot) { s.InFlight, s.Begun, s.Wait = 4, 44, -1 }, 0, 1, 3),
			[]string{
				`not_entered (certain) rank 2 (node1, pid 1002) has not entered all_reduce 41 on "world"; its last, ` +
					`all_reduce 40 on "world", ended 6s ago; ranks 0, 1 and 3 wait`,
			},
		},
		{
			"calls were launched that can't be done",
			pending(6 * time.Second),
			[]string{
				`not_entered (certain) rank 2 (node1, pid 1002) has not entered all_reduce 43 on "world", nor any ` +
					`collective from number 41 on; its last, all_reduce 40 on "world", returned 6s ago; ` +
					`ranks 0, 1 and 3 wait`,
			},
		},
		{
			"a rank that is behind has not ended its group",
			pending(6*time.Second).in(world, 43, allReduce, s5, -1, 0, 2).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Counted = true }, 2),
			[]string{
				`unfinished_group (likely) rank 2 (node1, pid 1002) began all_reduce 43 on "world" 5s ago, and it is ` +
					`not launched: its group has not ended, or NCCL is still at it; ranks 0, 1 and 3 wait`,
			},
		},
		{"a rank that is behind goes on", pending(time.Second), nil},
		{
			"the counts of a rank that is behind are old",
			pending(6*time.Second).with(func(n *verdict.Note, _ *verdict.Slot) { n.Stale = true }, 2), nil,
		},
		{
			"a graph may have made the calls that are missing",
			pending(6*time.Second).with(func(_ *verdict.Note, s *verdict.Slot) { s.Captured = 3 }, 2), nil,
		},
		{
			"a root is ahead, which waits for nobody",
			pending(6*time.Second).with(func(_ *verdict.Note, s *verdict.Slot) { s.Op.Call = lifecycle.CallBroadcast },
				0, 1, 3), nil,
		},
		{
			"the last calls are known to be done",
			pending(6*time.Second).with(func(_ *verdict.Note, s *verdict.Slot) { s.Unproven = false }, 0, 1, 3), nil,
		},
		{
			"graphs may make calls that are not seen",
			hang().with(func(_ *verdict.Note, s *verdict.Slot) { s.Captured = 3 }, 2),
			[]string{`not_entered (likely) rank 2 (node1, pid 1002) has not entered all_reduce 41 on "world"`},
		},
		{
			"all have launched it, and no stream has done it: slow, and nobody's fault",
			newJob(4).in(world, 8, allReduce, 30*time.Second, -1, 0, 0, 1, 2, 3).with(onStream, 0, 1, 2, 3), nil,
		},
		{
			"the same for minutes",
			newJob(4).in(world, 8, allReduce, 3*time.Minute, -1, 0, 0, 1, 2, 3).with(onStream, 0, 1, 2, 3),
			[]string{
				`unknown (possible) all_reduce 8 on "world" does not complete, and the cause is not known: ` +
					`all ranks have launched it, and the device has not done it`,
			},
		},
		{
			"all devices have come to it",
			newJob(4).in(world, 8, allReduce, s5, -1, 0, seq(4)...).with(reached, seq(4)...),
			[]string{
				`unknown (possible) all_reduce 8 on "world" does not complete, and the cause is not known: ` +
					`all ranks have launched it, and their devices have come to it`,
			},
		},
		{
			"all devices have come to it, of which one may have captured it",
			newJob(4).in(world, 8, allReduce, s5, -1, 0, 0, 2, 3).with(reached, 0, 2, 3).
				did(world, 8, allReduce, s5, 1).with(captured, 1),
			[]string{
				`unknown (possible) all_reduce 8 on "world" does not complete, and the cause is not known: ` +
					`all ranks have called it, and rank 1 captured operations of "world" in CUDA graphs`,
			},
		},
		{
			"all devices have come to it, and something else is wrong",
			newJob(4).in(world, 8, allReduce, s5, -1, 0, seq(4)...).with(reached, seq(4)...).comm("dp", 0, 1).
				in("dp", 3, allReduce, s5, -1, 0, 0).in("dp", 3, lifecycle.CallAllGather, s5, -1, 0, 1),
			[]string{`mismatch (likely) the ranks made different calls as number 3 on "dp"`},
		},
		{
			"all devices have come to it, and one may not have",
			newJob(4).in(world, 8, allReduce, s5, -1, 0, seq(4)...).with(reached, 0, 1, 2).with(onStream, 3), nil,
		},
		{
			"all devices have come to it, and it takes a while",
			newJob(4).in(world, 8, allReduce, s5, -1, 0, seq(4)...).with(reached, seq(4)...).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Op.Bytes = 1 << 30 }, seq(4)...), nil,
		},
		{
			"one was canceled in a call of which the others had all they needed",
			newJob(2).in(world, 9, allReduce, s6, 0, s6, 1).with(failed(lifecycle.CodePeerAborted, 0), 1).
				did(world, 8, allReduce, time.Millisecond, 0).with(failed(lifecycle.CodeCanceled, -1), 0), nil,
		},
		{
			"the same, but it was not canceled",
			newJob(2).in(world, 9, allReduce, s6, 0, s6, 1).with(failed(lifecycle.CodePeerAborted, 0), 1).
				did(world, 8, allReduce, time.Millisecond, 0),
			[]string{`not_entered (certain) rank 0 (node0, pid 1000) `},
		},
		{
			"the one that they waited for has come, and one note is older",
			newJob(4).in(world, 41, allReduce, s6, 2, s6, 3).did(world, 41, allReduce, 5*time.Millisecond, 0, 1, 2),
			nil,
		},
		{
			"bytes come: slow, and nobody's fault",
			newJob(4).in(world, 8, allReduce, 30*time.Second, 1, 20*time.Millisecond,
				0, 1, 2, 3), nil,
		},
		{
			"from one rank to the next nothing comes",
			newJob(4).in(world, 8, allReduce, 9*time.Second, 3, 7*time.Second, 0).in(world, 8, allReduce, 9*time.Second,
				0, 6900*time.Millisecond, 1).
				in(world, 8, allReduce, 9*time.Second, 1, 8900*time.Millisecond, 2).in(world, 8, allReduce,
				9*time.Second, 2, 8*time.Second, 3),
			[]string{
				`transport (likely) all ranks are in all_reduce 8 on "world", and no data has moved from rank 1 to ` +
					`rank 2 for 8.9s, over TCP from host node0 to host node1`,
			},
		},
		{
			"the same, and messages to other nodes go through the rank on the receiver's rail",
			newJob(4).in(world, 8, allReduce, 9*time.Second, 3, 7*time.Second, 0, 2).
				in(world, 8, allReduce, 9*time.Second, 2, 6900*time.Millisecond, 1).
				in(world, 8, allReduce, 9*time.Second, 0, 8900*time.Millisecond, 3).with(pxn, 0, 1, 2, 3),
			[]string{
				`transport (certain) all ranks are in all_reduce 8 on "world", and no data has moved from rank 0 to ` +
					`rank 3 for 8.9s, over TCP from host node0 to host node1, on rail 1 and through the proxy of ` +
					`rank 1;`,
			},
		},
		{
			"a launcher ends the others of one that was killed",
			newJob(3).did(world, 8, allReduce, s6, 0, 1, 2).
				with(fate(verdict.Dead, time.Second, "it was ended by SIGKILL"), 1).
				with(told(900*time.Millisecond), 0, 2),
			[]string{`rank_dead (certain) rank 1 (node0, pid 1001) ended 1s ago: it was ended by SIGKILL`},
		},
		{
			"all are told to end",
			newJob(3).did(world, 8, allReduce, s6, 0, 1, 2).with(told(900*time.Millisecond), 0, 1).
				with(told(time.Second), 2),
			nil,
		},
		{
			"one alone is told to end",
			newJob(3).did(world, 8, allReduce, s6, 0, 1, 2).with(told(time.Second), 2),
			[]string{`rank_dead (certain) rank 2 (node1, pid 1002) ended 1s ago: it was ended by SIGTERM`},
		},
		{
			"all of a machine are told to end, and nothing is known of the other machine's",
			newJob(4).did(world, 8, allReduce, s6, 2, 3).with(told(time.Second), 2, 3).without(0, 1),
			nil,
		},
		{
			"nothing is known of the ranks of another machine, which were told to end",
			newJob(4).in(world, 9, allReduce, s6, -1, 0, 0, 1).without(2, 3),
			[]string{
				`unknown (possible) all_reduce 9 on "world" does not complete, and the cause is not known: ` +
					`nothing is known of ranks 2 and 3 of "world"`,
			},
		},
		{
			"a host stands still, which shows by another process of it",
			newJob(4).comm("pair", 1, 2).in("pair", 8, allReduce, s6, 1, s6, 1).in("pair", 8, allReduce, s6, 0, s6, 2).
				in(world, 9, allReduce, s6, 3, s6, 0).with(fate(verdict.Stopped, s6, ""), 3),
			[]string{`rank_stopped (certain) rank 3 (node1, pid 1003) stopped 6s ago; rank 0 waits`},
		},
		{
			"a process was stopped when the connection had been dead for long",
			newJob(4).comm("pair", 1, 2).in("pair", 8, allReduce, s6, 1, s6, 1).in("pair", 8, allReduce, s6, 0, s6, 2).
				with(fate(verdict.Stopped, time.Second, ""), 3),
			[]string{
				`transport (certain) all ranks are in all_reduce 8 on "pair", and no data has moved from rank 2 ` +
					`(1 on "pair") to rank 1 (0 on "pair") for 6s, over TCP from host node1 to host node0`,
				`rank_stopped (certain) rank 3 (node1, pid 1003) stopped 1s ago`,
			},
		},
		{
			"the one that carries a message is stopped, and has nothing to do with it",
			newJob(4).in(world, 8, lifecycle.CallSend, s6, 3, s6, 0).in(world, 8, lifecycle.CallRecv, s6, 0, s6, 3).
				with(pxn, 0, 1, 2, 3).with(messageBetween03, 0, 3).with(fate(verdict.Stopped, 5*time.Second, ""), 1),
			[]string{`rank_stopped (certain) rank 1 (node0, pid 1001) stopped 5s ago; ranks 0 and 3 wait`},
		},
		{
			"two exchange messages, and neither hears of the other",
			newJob(2).in(world, 3, lifecycle.CallSendRecv, s6, 1, s6, 0).in(world, 3, lifecycle.CallSendRecv, s6, 0, s6,
				1),
			[]string{
				`transport (certain) rank 0 and rank 1 exchange messages, and no data has moved in either direction ` +
					`for 6s, over TCP from host node0 to host node1`,
			},
		},
		{
			"one has ended the call, the others end it in a moment",
			newJob(2).did(world, 9, allReduce, time.Millisecond,
				0).in(world, 9, allReduce, s6, 0, time.Millisecond, 1), nil,
		},
		{
			"it makes other calls for ever, and never this one",
			newJob(4).comm("pair", 2, 3).in(world, 9, lifecycle.CallBarrier, 3*time.Minute, 2, 3*time.Minute,
				0, 1).did(world, 8, lifecycle.CallBarrier, 3*time.Minute, 2, 3).
				did("pair", 977, allReduce, time.Millisecond, 2, 3),
			[]string{`not_entered (possible) ranks 2 and 3 have not entered barrier 9 on "world"; ranks 0 and 1 wait`},
		},
		{
			"a group job that nobody completes is in the way of a split",
			newJob(4).in(world, 12, lifecycle.CallSplit, s6, 2, s6, 0, 1, 3).did(world, 11, allReduce, 9*time.Second,
				2).with(act(tape.ActGroup, 9*time.Second, false), 2),
			[]string{
				`unfinished_group (certain) rank 2 (node1, pid 1002) has a group job that has been open for ` +
					`9s: call Wait or AsyncError (ncclCommGetAsyncError); until then it cannot enter a split of ` +
					`"world"; ranks 0, 1 and 3 wait`,
			},
		},
		{
			"and of its own finalize",
			newJob(2).with(act(tape.ActGroup, 9*time.Second, false), 1).with(act(tape.ActFinalize, s6, true), 1),
			[]string{
				`unfinished_group (certain) finalize of "world" on rank 1 (node1, pid 1001) waits for a group job ` +
					`that has been open for 9s: call Wait or AsyncError (ncclCommGetAsyncError)`,
			},
		},
		{
			"all wait for each other now and then",
			newJob(3).with(waited(1, 2500*time.Millisecond, 50, 10*time.Second),
				0).with(waited(2, 2500*time.Millisecond, 50, 10*time.Second), 1).
				with(waited(0, 2500*time.Millisecond, 50, 10*time.Second), 2), nil,
		},
		{"one long wait of a job that has just begun", newJob(3).with(waited(1, time.Second, 30, 1200*time.Millisecond),
			0, 2), nil},
		{
			"one rank is waited for in each step",
			newJob(4).with(waited(2, 3*time.Second, 50, 10*time.Second), 0, 1, 3),
			[]string{
				`straggler (likely) rank 2 (node1, pid 1002) holds up "world": the others wait for it 30 % of the ` +
					`time, 60ms an operation`,
			},
		},
		{
			"two of two with a mismatch, as the engine found it",
			newJob(2).in(world, 7, allReduce, s6, 1, s6, 0).in(world, 7, lifecycle.CallBarrier, s6, 0, s6, 1),
			[]string{
				`mismatch (likely) the ranks made different calls as number 7 on "world", and it is not known ` +
					`which is wrong: rank 0: all_reduce of float32, 4096 bytes; rank 1: barrier`,
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			verdicts, _ := verdict.Diagnose(c.job)
			var got []string
			for i := range verdicts {
				got = append(got,
					fmt.Sprintf("%s (%s) %s", verdicts[i].Reason, verdicts[i].Confidence, verdicts[i].Text))
			}
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
			for _, v := range verdicts {
				if c.job[2%len(c.job)].Where != "" && !slices.ContainsFunc(v.Evidence, func(e verdict.Text) bool {
					return strings.Contains(e.String(), "reading a file")
				}) {
					t.Errorf("what it does meanwhile is not in %v", v.Evidence)
				}
			}
		})
	}
}

// TestAnswered: of a verdict that holds no longer, whether those that wait in its call do so for its culprits.
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

// TestResolved: of a verdict that holds no longer, whether its cause is gone, or only those that waited.
func TestResolved(t *testing.T) {
	hang := func() job {
		return newJob(4).in(world, 41, allReduce, s6, 2, s6, 0, 1, 3).did(world, 40, allReduce, s6, 2)
	}
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

// TestTracker: a verdict goes on while its cause does, whatever less or more is known of it, and is news when it says
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

// ring is a job of which three ranks wait for each other, for so long each.
func ring(ages ...time.Duration) job {
	j := newJob(3).comm("x", 0, 1).comm("y", 1, 2).comm("z", 2, 0)
	for r, comm := range []string{"x", "y", "z"} {
		j.in(comm, 1, allReduce, ages[r], 1, ages[r], r)
	}
	return j
}

// ahead is a job whose ranks launched calls that nobody knows to be done, but for rank 2, which made its last one so
// long ago, three calls before.
func pending(ago time.Duration) job {
	last := func(_ *verdict.Note, s *verdict.Slot) { s.Unproven, s.Begun = true, s.Seq }
	return newJob(4).did(world, 43, lifecycle.CallAllReduce, 6*time.Second, 0, 1, 3).
		did(world, 40, lifecycle.CallAllReduce, ago, 2).with(last, 0, 1, 2, 3)
}

// The evidence says nothing that the text denies: who has launched a call is not between its calls, and who is through
// one has come to it.
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
		"one is through": {
			newJob(3).in(world, 8, lifecycle.CallBroadcast, 3*time.Minute, -1, 0, 1, 2).with(onStream, 1, 2).
				did(world, 8, lifecycle.CallBroadcast, 3*time.Minute, 0),
			`all ranks have launched it`, `2 of 3 ranks are still in broadcast 8 on "world", the first for 3m0s`,
		},
		"none is through": {
			newJob(3).in(world, 8, allReduce, 3*time.Minute, -1, 0, seq(3)...).with(onStream, seq(3)...),
			`all ranks have launched it`, `3 of 3 ranks are in all_reduce 8 on "world", the first for 3m0s`,
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

// All ranks have launched an operation, and of some it isn't known for what their streams wait. A rank whose data the
// network doesn't take is the cause; who waits for data isn't, as a device may not have come to send it.
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

// Groups of a split without names, as NCCL's are, have one role: a rank that calls them in another order is found by
// what the ranks of the others do.
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
