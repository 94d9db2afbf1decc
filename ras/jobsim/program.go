package jobsim

import (
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

// These are the instructions.
type (
	// Compute spends time outside of the runtime.
	Compute struct{ For time.Duration }
	// Hang does nothing any more.
	Hang struct{}
	// Call makes an operation. With Async, the thread goes on at once, and waits for it in Wait.
	Call struct {
		Comm    string
		Sig     tape.Signature
		Timeout time.Duration // of its context; 0 for none
		Async   bool
		// Behind is for how long the stream on which it is launched is busy with earlier work.
		Behind time.Duration
		// Launched tells that the thread goes on at once, and never learns that the operation has ended, nor does the
		// tape: it says that it was launched.
		Launched bool
	}
	// Group makes sends and receives that progress together.
	Group struct {
		Comm string
		Sigs []tape.Signature
	}
	// Wait waits for all operations that the thread began.
	Wait struct{}
	// Init makes the communicator of all ranks; the last one to come makes it ready.
	Init struct{}
	// Split makes a communicator of the ranks that give the same color, and calls it Name.
	Split struct {
		Comm, Name string
		Color      int
	}
	// Destroy ends a communicator in order.
	Destroy struct{ Comm string }
	// Abort ends a communicator at once.
	Abort struct{ Comm, Cause string }
	// Leave ends the process in order, with an exit code of 0.
	Leave struct{ Together bool } // when all ranks of the process do
	// Die ends the process at once, as a crash does.
	Die struct{ Code int }
	// Do does something else, at once.
	Do struct{ F func() }
	// Open opens a gate once.
	Open struct{ Gate *Gate }
	// Pass waits until a gate was opened once more than it was passed.
	Pass struct{ Gate *Gate }
)

// Gate lets threads of a rank wait for each other: Open lets one Pass go on, whichever comes first.
type Gate struct {
	opened  int // and not passed
	waiting []*thread
}

// thread is one goroutine of a rank's program.
type thread struct {
	rank    *Rank
	program Program
	pending int  // operations that it began, and that go on
	waits   bool // for those
	ended   bool
}

// Run lets a rank run a program, in a thread of its own.
func (r *Rank) Run(program Program) {
	t := &thread{rank: r, program: program}
	r.threads = append(r.threads, t)
	r.Process.job.After(0, t.next)
}

// next goes on with the next instruction.
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

// soon goes on in a moment, so that a program without a wait doesn't run for ever.
func (t *thread) soon() { t.rank.Process.job.After(time.Microsecond, t.next) }

// closeTime is how long a process that ends in order after an error waits until the error was explained.
const closeTime = 300 * time.Millisecond

// returned takes the error of a call.
func (t *thread) returned(f *Fault) {
	if f == nil {
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
	case Stay:
	}
}

func (i Compute) do(t *thread) { t.rank.Process.job.After(i.For, t.next) }
func (Hang) do(*thread)        {}
func (i Do) do(t *thread)      { i.F(); t.soon() }
func (i Die) do(t *thread)     { t.rank.Process.Kill(exited(i.Code)) }
func (i Destroy) do(t *thread) { t.rank.parts[i.Comm].destroy(t.soon) }
func (i Abort) do(t *thread)   { t.rank.parts[i.Comm].abort(i.Cause); t.soon() }
func (i Open) do(t *thread)    { i.Gate.Open(); t.soon() }

func exited(code int) process.Exit { return process.Exit{Known: true, Code: code} }

func (i Leave) do(t *thread) {
	p := t.rank.Process
	if p.leaving++; !i.Together || p.leaving == len(p.Ranks) {
		p.leave(0)
	}
}

// Open opens the gate once.
func (g *Gate) Open() {
	if len(g.waiting) == 0 {
		g.opened++
		return
	}
	next := g.waiting[0]
	g.waiting = g.waiting[1:]
	next.soon()
}

func (i Pass) do(t *thread) {
	if i.Gate.opened == 0 {
		i.Gate.waiting = append(i.Gate.waiting, t)
		return
	}
	i.Gate.opened--
	t.soon()
}

func (i Call) do(t *thread) {
	part := t.rank.parts[i.Comm]
	if part == nil {
		panic(fmt.Sprintf("jobsim: rank %d has no communicator %q", t.rank.Job, i.Comm))
	}
	o := &operation{sig: i.Sig, timeout: i.Timeout, behind: i.Behind, done: t.returned}
	if i.Launched {
		o.launched, o.done = true, nil
		part.launch(o)
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
	part.launch(o)
	if i.Async && !t.ended {
		t.soon()
	}
}

func (i Group) do(t *thread) {
	sum := tape.Signature{Call: lifecycle.CallSendRecv, Peer: -1}
	for _, sig := range i.Sigs {
		sum.DataType = sig.DataType
		sum.Bytes += sig.Bytes
	}
	t.rank.parts[i.Comm].launch(&operation{sig: sum, group: i.Sigs, done: t.returned})
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
	part := t.rank.join(j.world, t.rank.Job, lifecycle.CallInitRank)
	start := j.now
	part.act(tape.ActInit, tape.LifeRecord{
		Call: lifecycle.CallInitRank, Stage: tape.StagePhase, Phase: tape.PhaseRendezvous, Start: start, Peer: -1,
	})
	j.joining[t.rank] = func() {
		part.ready(lifecycle.CallInitRank, start)
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
	parent := t.rank.parts[i.Comm]
	start := t.rank.Process.job.now
	parent.splits++
	number := parent.splits
	parent.begin(tape.ActSplit, lifecycle.CallSplit, uint64(number))
	parent.comm.splits[[2]int{number, parent.slot.Rank}] = i
	o := &operation{sig: tape.Signature{Call: lifecycle.CallSplit, Peer: -1, Bytes: 16}}
	o.done = func(f *Fault) {
		if f == nil {
			parent.comm.child(t.rank, number)
		}
		parent.end(tape.ActSplit, lifecycle.CallSplit, uint64(number), start, f)
		t.returned(f)
	}
	parent.launch(o)
}

// child gives a rank its part in the communicator that a split made.
func (c *comm) child(r *Rank, number int) {
	own := r.parts[c.info.Name].slot.Rank
	split := c.splits[[2]int{number, own}]
	var members []int
	for rank := range c.parts {
		if other, ok := c.splits[[2]int{number, rank}]; ok && other.Color == split.Color {
			members = append(members, rank)
		}
	}
	key := [2]int{number, split.Color}
	if c.children[key] == nil {
		c.children[key] = r.Process.job.newComm(split.Name, c.info.ID, len(members))
	}
	r.join(c.children[key], slices.Index(members, own), lifecycle.CallSplit).ready(lifecycle.CallSplit,
		r.Process.job.now)
}
