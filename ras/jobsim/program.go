package jobsim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Instruction is one thing that a thread of a rank's program does.
type Instruction interface{ do(t *thread) }

// Program is a thread's instructions, one after the other; nil when it ends.
type Program func() Instruction

// The instructions.
type (
	// Compute spends time outside of the runtime.
	Compute struct{ For time.Duration }
	// Hang never returns.
	Hang struct{}
	// Call starts an operation and waits for it; with Async, Wait waits for it.
	Call struct {
		Comm    string
		Sig     tape.Signature
		Timeout time.Duration // of its context; 0 for none
		Async   bool
		// Behind is how long earlier work keeps its stream busy.
		Behind time.Duration
		// Launched makes the call return once the operation is launched; neither the thread nor the tape learns when
		// it completes.
		Launched bool
	}
	// Group makes sends and receives that progress together, by one call: CallSendRecv if it is not set.
	Group struct {
		Comm string
		Sigs []tape.Signature
		Call lifecycle.Call
	}
	// Wait waits for all operations that the thread began.
	Wait struct{}
	// Init joins the communicator of all ranks, which is ready once all have joined.
	Init struct{}
	// Split makes a communicator called Name of the ranks with the same color; a rank with a negative one gets none.
	Split struct {
		Comm, Name string
		Color      int
	}
	// Shrink revokes a communicator and makes another one, called Name, of its ranks without some. That is ready once
	// all of its ranks have come.
	Shrink struct {
		Comm, Name string
		Without    []int
	}
	// Destroy destroys a communicator once its operations have ended.
	Destroy struct{ Comm string }
	// Abort aborts a communicator.
	Abort struct{ Comm, Cause string }
	// Leave closes the runtime and exits; with Together, once all ranks of the process do.
	Leave struct {
		Together bool
		Code     int
	}
	// Die ends the process without closing the runtime, as a crash does.
	Die struct{ Code int }
	// Do calls F.
	Do struct{ F func() }
	// Open adds one to a gate's count.
	Open struct{ Gate *Gate }
	// Pass takes one from a gate's count, and waits while it is zero.
	Pass struct{ Gate *Gate }
)

// Gate is a semaphore by which threads of a rank wait for each other.
type Gate struct {
	count   int
	waiting []*thread
}

// thread is one goroutine of a rank's program.
type thread struct {
	rank    *Rank
	program Program
	pending int  // asynchronous operations in flight
	waits   bool // in Wait, for the pending operations
	ended   bool
}

// Run starts a thread of the rank that runs the program.
func (r *Rank) Run(program Program) {
	t := &thread{rank: r, program: program}
	r.threads = append(r.threads, t)
	r.Process.job.After(0, t.next)
}

// next runs the next instruction.
func (t *thread) next() {
	t.rank.Process.Do(func() {
		if t.ended {
			return
		}
		if i := t.program(); i != nil {
			i.do(t)
		} else {
			t.ended = true
		}
	})
}

// soon runs the next instruction a moment later, so that time passes in a program that never waits.
func (t *thread) soon() { t.rank.Process.job.After(time.Microsecond, t.next) }

// closeTime is how long a process that closes its runtime after an error waits for the explanation.
const closeTime = 300 * time.Millisecond

// returned continues the thread after a call, or reacts to its error.
func (t *thread) returned(f *Fault) {
	if f == nil || t.rank.Process.job.OnError == GoOn {
		t.soon()
		return
	}
	p := t.rank.Process
	t.ended = true
	switch p.job.OnError {
	case Exit:
		p.later(2*time.Millisecond, func() { p.Kill(exited(1)) })
	case Close:
		p.later(closeTime, func() { p.leave(1) })
	case Stay, GoOn:
	}
}

func (i Compute) do(t *thread) { t.rank.Process.job.After(i.For, t.next) }
func (Hang) do(*thread)        {}
func (i Do) do(t *thread)      { i.F(); t.soon() }
func (i Die) do(t *thread)     { t.rank.Process.Kill(exited(i.Code)) }
func (i Destroy) do(t *thread) { t.rank.members[i.Comm].destroy(t.soon) }
func (i Abort) do(t *thread)   { t.rank.members[i.Comm].abort(i.Cause); t.soon() }
func (i Open) do(t *thread)    { i.Gate.Open(); t.soon() }

func exited(code int) process.Exit { return process.Exit{Known: true, Code: code} }

func (i Leave) do(t *thread) {
	p := t.rank.Process
	if p.leaving++; !i.Together || p.leaving == len(p.Ranks) {
		p.leave(i.Code)
	}
}

// Open adds one to the count, or lets the first waiting thread continue.
func (g *Gate) Open() {
	if len(g.waiting) == 0 {
		g.count++
		return
	}
	next := g.waiting[0]
	g.waiting = g.waiting[1:]
	next.soon()
}

func (i Pass) do(t *thread) {
	if i.Gate.count == 0 {
		i.Gate.waiting = append(i.Gate.waiting, t)
		return
	}
	i.Gate.count--
	t.soon()
}

func (i Call) do(t *thread) {
	member := t.rank.members[i.Comm]
	if member == nil {
		panic(fmt.Sprintf("jobsim: rank %d has no communicator %q", t.rank.Job, i.Comm))
	}
	o := &operation{sig: i.Sig, timeout: i.Timeout, behind: i.Behind, done: t.returned}
	if i.Launched {
		o.launched, o.done = true, nil
		member.launch(o)
		t.soon()
		return
	}
	if i.Async {
		t.pending++
		o.done = func(f *Fault) {
			t.pending--
			if f != nil && !t.ended {
				t.returned(f)
			} else if t.waits && t.pending == 0 {
				t.waits = false
				t.soon()
			}
		}
	}
	member.launch(o)
	if i.Async && !t.ended {
		t.soon()
	}
}

func (i Group) do(t *thread) {
	sum := tape.Signature{Call: cmp.Or(i.Call, lifecycle.CallSendRecv), Peer: -1}
	for _, sig := range i.Sigs {
		sum.DataType = sig.DataType
		sum.Bytes += sig.Bytes
	}
	t.rank.members[i.Comm].launch(&operation{sig: sum, group: i.Sigs, done: t.returned})
}

func (Wait) do(t *thread) {
	if t.pending == 0 {
		t.soon()
		return
	}
	t.waits = true
}

func (Init) do(t *thread) {
	j := t.rank.Process.job
	if j.world == nil {
		j.world = j.newComm("world", lifecycle.CommID{}, len(j.Ranks))
	}
	member, ready := t.rank.join(j.world, t.rank.Job, lifecycle.CallInitRank)
	member.life(tape.LifeRecord{
		Act: tape.ActInit, Call: lifecycle.CallInitRank, Stage: tape.StagePhase, Phase: tape.PhaseRendezvous,
		Start: j.now, Peer: -1,
	})
	j.joining[t.rank] = func() {
		ready()
		t.soon()
	}
	if len(j.joining) < len(j.Ranks) {
		return
	}
	for _, r := range j.Ranks {
		r.Process.later(j.Latency, j.joining[r])
	}
}

func (i Split) do(t *thread) {
	parent := t.rank.members[i.Comm]
	parent.splits++
	number := parent.splits
	end := parent.begin(tape.ActSplit, lifecycle.CallSplit, number)
	parent.comm.splits[[2]int{number, parent.slot.Rank}] = i
	o := &operation{sig: tape.Signature{Call: lifecycle.CallSplit, Peer: -1, Bytes: 16}}
	o.done = func(f *Fault) {
		if f == nil && i.Color >= 0 {
			end(nil, parent.comm.child(t.rank, number))
		} else {
			end(f)
		}
		t.returned(f)
	}
	parent.launch(o)
}

// child makes a rank a member of the communicator that a split made, and returns its id.
func (c *comm) child(r *Rank, number int) lifecycle.CommID {
	own := r.members[c.info.Name].slot.Rank
	split := c.splits[[2]int{number, own}]
	var members []int
	for rank := range c.members {
		if other, ok := c.splits[[2]int{number, rank}]; ok && other.Color == split.Color {
			members = append(members, rank)
		}
	}
	key := [2]int{number, split.Color}
	if c.children[key] == nil {
		c.children[key] = r.Process.job.newComm(split.Name, c.info.ID, len(members))
	}
	_, ready := r.join(c.children[key], slices.Index(members, own), lifecycle.CallSplit)
	ready()
	return c.children[key].info.ID
}

func (i Shrink) do(t *thread) {
	parent, j := t.rank.members[i.Comm], t.rank.Process.job
	parent.slot.State = lifecycle.StateRevoked
	parent.shrinks++
	end := parent.begin(tape.ActShrink, lifecycle.CallShrink, parent.shrinks)
	var members []int
	for rank := range parent.comm.members {
		if !slices.Contains(i.Without, rank) {
			members = append(members, rank)
		}
	}
	c := parent.comm.shrunk[parent.shrinks]
	if c == nil {
		c = j.newComm(i.Name, parent.comm.info.ID, len(members))
		parent.comm.shrunk[parent.shrinks] = c
	}
	_, ready := t.rank.join(c, slices.Index(members, parent.slot.Rank), lifecycle.CallShrink)
	c.joined = append(c.joined, func() {
		t.rank.Process.Do(func() {
			ready()
			end(nil, c.info.ID)
			t.soon()
		})
	})
	if len(c.joined) == len(members) {
		for _, joined := range c.joined {
			j.After(j.Latency, joined)
		}
	}
}
