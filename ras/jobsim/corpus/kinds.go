package corpus

import (
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/jobsim"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// instructions are those of a rank in a step.
type instructions = []jobsim.Instruction

// editor puts a fault into the instructions of its step, if they have a place for it. begin records when the fault
// begins.
type editor = func(l *Layout, f *Fault, is instructions, begin jobsim.Do) instructions

// Strike is what happens to processes from outside, at some moment of the training.
type Strike uint8

// The strikes.
const (
	None  Strike = iota
	Stops        // processes are stopped with a signal
	Kills        // processes are killed
	Cuts         // the machine is disconnected; simulated only, as a real cut needs root
)

// Kind is a kind of faults.
type Kind struct {
	Name    string
	Reasons []verdict.Reason // each is right
	Healthy bool             // not a fault: a verdict is wrong
	// Optional tells that the job may continue without a stall, in which case no verdict is needed.
	Optional bool
	// Process tells that all ranks of the process are at fault, Host that all of the host are.
	Process, Host bool
	Long          bool // it takes a while to detect
	Two           bool // the trial has two faults, of other kinds
	// Always tells that the fault is in each step from its first on, All that all ranks have it.
	Always, All bool
	Edit, Side  editor // of the main thread, and of the goroutine for gradients
	Strike      Strike
	Passes      bool // the strike ends after Fault.For
	// Fits tells whether a trial can have the fault, and may change both to make it fit; nil: all can.
	Fits func(t *Trial, f *Fault) bool
}

// measured tells whether the delay of the verdict after the threshold counts: other ranks wait from the fault's
// beginning on.
func (k *Kind) measured() bool {
	return len(k.Reasons) == 1 && (k.Reasons[0] == verdict.NotEntered || k.Reasons[0] == verdict.NotJoined)
}

// KindOf is the kind of that name; nil if there is none.
func KindOf(name string) *Kind {
	if i := slices.IndexFunc(Kinds, func(k *Kind) bool { return k.Name == name }); i >= 0 {
		return Kinds[i]
	}
	return nil
}

// Kinds are all kinds of faults.
var Kinds = []*Kind{
	{Name: "healthy", Healthy: true},
	{Name: "data loader hangs", Reasons: notEntered, Edit: before(isCall, hang)},
	{Name: "compute loop", Reasons: notEntered, Edit: before(isCall, hang)},
	{Name: "file", Reasons: notEntered, Edit: before(isCall, late)},
	{Name: "lock", Reasons: notEntered, Edit: before(isCall, hang)},
	{Name: "late", Reasons: notEntered, Edit: before(isCall, late)},
	{Name: "side goroutine hangs", Reasons: notEntered, Fits: hasGoroutines, Side: before(isCall, hang)},
	{Name: "stop", Reasons: stopped, Process: true, Strike: Stops},
	{Name: "stop for a while", Reasons: stopped, Process: true, Strike: Stops, Passes: true},
	{Name: "kill", Reasons: dead, Process: true, Strike: Kills},
	{Name: "exit", Reasons: dead, Process: true, Edit: before(isCall, does(jobsim.Die{Code: 1}))},
	{Name: "panic", Reasons: dead, Process: true, Edit: before(isCall, does(jobsim.Die{Code: 2}))},
	{
		Name: "leave", Reasons: []verdict.Reason{verdict.RankDead, verdict.NotEntered}, Process: true,
		Edit: before(isCall, does(jobsim.Leave{})),
	},
	{Name: "skip", Reasons: disorder, Optional: true, Fits: hasCollectives, Edit: replace(isCollective, drop)},
	{Name: "extra", Reasons: disorder, Optional: true, Fits: hasCollectives, Edit: replace(isCollective, twice)},
	{
		Name: "another call", Reasons: different, Fits: hasCollectives,
		Edit: replace(isCollective, other(func(sig *tape.Signature) { sig.Call = lifecycle.CallAllGather })),
	},
	{
		Name: "count", Reasons: different, Fits: hasCollectives,
		Edit: replace(is(lifecycle.CallAllReduce), other(func(sig *tape.Signature) { sig.Bytes += 8 })),
	},
	{
		Name: "type", Reasons: different, Fits: hasCollectives,
		Edit: replace(is(lifecycle.CallAllReduce), other(func(sig *tape.Signature) { sig.DataType-- })),
	},
	{
		Name: "root", Reasons: different, Fits: withBroadcasts,
		Edit: replace(is(lifecycle.CallBroadcast), other(func(sig *tape.Signature) { sig.Peer = 1 })),
	},
	{
		Name: "reduction", Reasons: different, Fits: hasCollectives,
		Edit: replace(is(lifecycle.CallAllReduce), other(func(sig *tape.Signature) { sig.Reduction++ })),
	},
	{Name: "order", Reasons: append(slices.Clone(disorder), verdict.Transport), Fits: hasLoss, Edit: lossFirst},
	{
		Name: "wrong peer", Reasons: disorder, Edit: replace(is(lifecycle.CallSend), wrongPeer),
		Fits: func(t *Trial, f *Fault) bool { return hasPipeline(t, f) && t.Layout.PP > 2 },
	},
	{Name: "missing receive", Reasons: disorder, Fits: hasPipeline, Edit: replace(is(lifecycle.CallRecv), drop)},
	{Name: "missing send", Reasons: disorder, Fits: hasPipeline, Edit: replace(is(lifecycle.CallSend), drop)},
	{Name: "missing at start", Reasons: notJoined, Fits: atSetup, Edit: before(isA[jobsim.Init], hang)},
	{Name: "late at start", Reasons: notJoined, Fits: atSetup, Edit: before(isA[jobsim.Init], late)},
	{Name: "missing at a split", Reasons: notJoined, Fits: atSetup, Edit: before(isA[jobsim.Split], hang)},
	{Name: "late at a split", Reasons: notJoined, Fits: atSetup, Edit: before(isA[jobsim.Split], late)},
	{
		Name: "short epoch", Reasons: disorder,
		Edit: func(l *Layout, f *Fault, _ instructions, begin jobsim.Do) instructions {
			return slices.Concat(instructions{begin}, l.teardown(f.Rank), instructions{jobsim.Leave{}})
		},
		Side: func(*Layout, *Fault, instructions, jobsim.Do) instructions { return instructions{jobsim.Hang{}} },
	},
	{
		Name: "early destroy", Reasons: notEntered,
		Edit: ends(func(comm string) jobsim.Instruction { return jobsim.Destroy{Comm: comm} }),
	},
	{
		Name: "abort", Reasons: notEntered,
		Edit: ends(func(comm string) jobsim.Instruction { return jobsim.Abort{Comm: comm, Cause: "loss is NaN"} }),
	},
	{
		Name: "straggler", Reasons: []verdict.Reason{verdict.Straggler}, Always: true, Long: true,
		Edit: before(isCall, does(jobsim.Compute{For: 300 * time.Millisecond})),
		Fits: func(t *Trial, f *Fault) bool {
			l := &t.Layout
			t.Steps, f.Step = 2000, 2
			l.Compute, l.EpochSteps = 5*time.Millisecond, 1000
			return l.Style == Blocking && l.EP == 1 && l.PP == 1 && (l.TP > 1 || l.DP > 1)
		},
	},
	{Name: "checkpoint", Healthy: true, Edit: before(isCall, does(jobsim.Compute{For: shortOfThreshold}))},
	{
		Name: "evaluation", Healthy: true, All: true,
		Edit: func(_ *Layout, f *Fault, is instructions, begin jobsim.Do) instructions {
			return append(instructions{begin, jobsim.Compute{For: f.For}}, is...)
		},
	},
	{Name: "slow but healthy", Healthy: true, Fits: func(t *Trial, _ *Fault) bool {
		l := &t.Layout
		l.Compute = shortOfThreshold / time.Duration(l.Layers*(l.PP+l.Micro)*2)
		return true
	}},
	{
		Name: "oversubscription", Healthy: true, Always: true, All: true, Edit: before(isCall, jitter),
		Fits: func(_ *Trial, f *Fault) bool {
			f.Step = 0
			return true
		},
	},
	{
		Name: "freeze of a machine", Reasons: []verdict.Reason{verdict.RankUnreachable, verdict.RankStopped},
		Host: true, Fits: severalHosts, Strike: Stops, Passes: true,
	},
	{
		Name: "cable", Reasons: []verdict.Reason{verdict.RankUnreachable, verdict.Transport}, Host: true,
		Fits: severalHosts, Strike: Cuts,
	},
	{Name: "timeout", Reasons: notEntered, Edit: before(isCall, hang), Fits: func(t *Trial, _ *Fault) bool {
		t.Timeout = shortOfThreshold
		return t.Layout.Style != Groups
	}},
	{Name: "two faults", Two: true},
}

var (
	notEntered = []verdict.Reason{verdict.NotEntered}
	notJoined  = []verdict.Reason{verdict.NotJoined}
	stopped    = []verdict.Reason{verdict.RankStopped}
	dead       = []verdict.Reason{verdict.RankDead}
	different  = []verdict.Reason{verdict.Mismatch}
	disorder   = []verdict.Reason{verdict.NotEntered, verdict.Mismatch, verdict.Deadlock, verdict.RankDead}
)

// shortOfThreshold is a long wait that is not a stall.
const shortOfThreshold = Threshold * 3 / 5

func hasGoroutines(t *Trial, _ *Fault) bool { return t.Layout.Style == Goroutines && t.Layout.DP > 1 }
func hasPipeline(t *Trial, _ *Fault) bool   { return t.Layout.PP > 1 && t.Layout.Style != Groups }
func severalHosts(t *Trial, _ *Fault) bool  { return t.Layout.Hosts > 1 }

func hasCollectives(t *Trial, _ *Fault) bool {
	l := &t.Layout
	return l.TP > 1 || l.DP > 1 && l.Style != Goroutines || l.Loss
}

func hasLoss(t *Trial, _ *Fault) bool {
	l := &t.Layout
	return l.DP > 1 && l.Loss && l.Style == Blocking && l.Ranks() > l.DP
}

func withBroadcasts(t *Trial, _ *Fault) bool {
	t.Layout.Sync = true
	return true
}

func atSetup(_ *Trial, f *Fault) bool {
	f.Step = setupStep
	return true
}

// predicate selects the instructions at which a fault can be.
type predicate = func(jobsim.Instruction) bool

func isA[T jobsim.Instruction](i jobsim.Instruction) bool {
	_, ok := i.(T)
	return ok
}

func isCall(i jobsim.Instruction) bool { return isA[jobsim.Call](i) || isA[jobsim.Group](i) }

func is(call lifecycle.Call) predicate {
	return func(i jobsim.Instruction) bool {
		c, ok := i.(jobsim.Call)
		return ok && c.Sig.Call == call
	}
}

// isCollective tells whether the instruction is a collective that blocks.
func isCollective(i jobsim.Instruction) bool {
	c, ok := i.(jobsim.Call)
	return ok && c.Sig.Call != lifecycle.CallSend && c.Sig.Call != lifecycle.CallRecv && !c.Async
}

// replace replaces one of the instructions for which ok is true.
func replace(ok predicate, with func(*Layout, *Fault, jobsim.Instruction) instructions) editor {
	return func(l *Layout, f *Fault, is instructions, begin jobsim.Do) instructions {
		at := places(is, ok)
		if len(at) == 0 {
			return is
		}
		i := at[f.At%len(at)]
		return slices.Concat(is[:i], instructions{begin}, with(l, f, is[i]), is[i+1:])
	}
}

func places(is instructions, ok predicate) (at []int) {
	for i := range is {
		if ok(is[i]) {
			at = append(at, i)
		}
	}
	return at
}

// before puts an instruction before one of those for which ok is true.
func before(ok predicate, more func(*Fault) jobsim.Instruction) editor {
	return replace(ok, func(_ *Layout, f *Fault, i jobsim.Instruction) instructions { return instructions{more(f), i} })
}

func does(i jobsim.Instruction) func(*Fault) jobsim.Instruction {
	return func(*Fault) jobsim.Instruction { return i }
}

func hang(*Fault) jobsim.Instruction   { return jobsim.Hang{} }
func late(f *Fault) jobsim.Instruction { return jobsim.Compute{For: f.For} }

// jitter computes for another duration at each call.
func jitter(f *Fault) jobsim.Instruction {
	f.Peer = (f.Peer*1103515245 + 12345) & (1<<30 - 1)
	return jobsim.Compute{For: time.Duration(f.Peer) * 300 * time.Millisecond >> 30}
}

func drop(*Layout, *Fault, jobsim.Instruction) instructions        { return nil }
func twice(_ *Layout, _ *Fault, i jobsim.Instruction) instructions { return instructions{i, i} }

// other changes the signature of the call.
func other(change func(sig *tape.Signature)) func(*Layout, *Fault, jobsim.Instruction) instructions {
	return func(_ *Layout, _ *Fault, i jobsim.Instruction) instructions {
		c := i.(jobsim.Call)
		change(&c.Sig)
		return instructions{c}
	}
}

// wrongPeer sends to another stage of the pipeline.
func wrongPeer(l *Layout, f *Fault, i jobsim.Instruction) instructions {
	c := i.(jobsim.Call)
	for p := range l.PP {
		if q := (p + f.Peer) % l.PP; q != l.stage(f.Rank) && int32(q) != c.Sig.Peer {
			c.Sig.Peer = int32(q)
			break
		}
	}
	return instructions{c}
}

// lossFirst swaps the all-reduce of the loss and the last one of gradients.
func lossFirst(l *Layout, f *Fault, is instructions, begin jobsim.Do) instructions {
	on := func(comm string) predicate {
		return func(i jobsim.Instruction) bool {
			c, ok := i.(jobsim.Call)
			return ok && c.Comm == comm && c.Sig.Call == lifecycle.CallAllReduce
		}
	}
	loss, gradients := places(is, on("world")), places(is, on(l.comm("dp", f.Rank)))
	if len(loss) == 0 || len(gradients) == 0 {
		return is
	}
	i, k := gradients[len(gradients)-1], loss[len(loss)-1]
	out := slices.Clone(is)
	out[i], out[k] = out[k], out[i]
	return slices.Insert(out, i, jobsim.Instruction(begin))
}

// ends makes the rank end the communicator of one of its calls instead of making it, and then hang.
func ends(how func(comm string) jobsim.Instruction) editor {
	return replace(isCall, func(_ *Layout, _ *Fault, i jobsim.Instruction) instructions {
		comm := ""
		switch c := i.(type) {
		case jobsim.Call:
			comm = c.Comm
		case jobsim.Group:
			comm = c.Comm
		}
		return instructions{how(comm), jobsim.Hang{}, i}
	})
}
