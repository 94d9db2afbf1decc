package verdict_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// job is the notes of a job, by rank. All its ranks are in world and at rest.
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

// slot is a rank's slot in a communicator, or one that belongs to no rank if it has none.
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

// did gives ranks a last call, which ended that long ago.
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

// messageBetween03 sets the peer of a message of rank 0 or 3 to the other one of the two.
func messageBetween03(_ *verdict.Note, s *verdict.Slot) { s.Op.Peer = int32(3 - s.Rank) }

// without is the job as it looks if some ranks give no note.
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

// opensGroup opens a group that the program does not end.
func opensGroup(age time.Duration) func(*verdict.Note, *verdict.Slot) {
	return func(_ *verdict.Note, s *verdict.Slot) {
		s.Acts = append(s.Acts, verdict.OpenAct{Act: tape.ActGroup, Age: age, Site: "train.go:7", Unended: true})
	}
}

func fate(f verdict.Fate, age time.Duration, cause string) func(*verdict.Note, *verdict.Slot) {
	return func(n *verdict.Note, _ *verdict.Slot) { n.Fate, n.FateAge, n.Cause = f, age, cause }
}

// told ends a process by a signal that asks for that.
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

// contained is a process in a container, as the agent of its machine describes it.
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

// revoked is a rank whose program revoked the communicator, and may have destroyed it since.
func revoked(_ *verdict.Note, s *verdict.Slot) {
	s.State = lifecycle.StateRevoked
	s.Revoked = &verdict.Left{Act: tape.ActRevoke, Age: s6, Site: "train.go:9", Text: "slow link"}
}

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

// grows is a job of which some ranks are in a grow of world.
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

// ring is a job of three ranks that wait for each other, each for the given time.
func ring(ages ...time.Duration) job {
	j := newJob(3).comm("x", 0, 1).comm("y", 1, 2).comm("z", 2, 0)
	for r, comm := range []string{"x", "y", "z"} {
		j.in(comm, 1, allReduce, ages[r], 1, ages[r], r)
	}
	return j
}

// pending is a job whose ranks launched calls that are not known to be complete, except rank 2, which made its last
// call that long ago, three calls before.
func pending(ago time.Duration) job {
	last := func(_ *verdict.Note, s *verdict.Slot) { s.Unproven, s.Begun = true, s.Seq }
	return newJob(4).did(world, 43, lifecycle.CallAllReduce, 6*time.Second, 0, 1, 3).
		did(world, 40, lifecycle.CallAllReduce, ago, 2).with(last, 0, 1, 2, 3)
}
