package corpus

import (
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/jobsim"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// instructions is what a rank does in a step.
type instructions = []jobsim.Instruction

// editor changes what the rank does in the fault's step; false if this list is not the one. begin notes when the fault
// begins; side says that the list is of the goroutine for gradients.
type editor = func(l *Layout, f *Fault, is instructions, begin jobsim.Do, side bool) (instructions, bool)

// Kind is a kind of faults.
type Kind struct {
	Name    string
	Reasons []verdict.Reason // any of them is right
	Healthy bool             // it is no fault: nothing may be said
	// Optional tells that the job may get over it without a stall: to say nothing is right, too.
	Optional bool
	// Process tells that all ranks of the process are at fault, Host that all of the host are, and Sides that each host
	// may name all others.
	Process, Host, Sides bool
	// Unreal tells that it can't be done to real processes without the rights of root.
	Unreal bool
	// Long tells that it takes a while until it is noticed.
	Long bool
	// Two tells that the trial has two faults, of other kinds.
	Two bool
	// Always tells that the rank does it in each step from the fault's on, All that all ranks do it.
	Always, All bool
	// Fits tells whether a trial can have the fault, and may change both to that end; nil: any can.
	Fits func(t *Trial, f *Fault) bool
	Edit editor // what the rank does otherwise
	// Strike is for faults that come from outside, at some moment of the training.
	Strike func(o Outside, f *Fault)
}

// Outside does to a job what comes from outside of its programs.
type Outside interface {
	Stop(rank int, stopped bool)   // the rank's process, with a signal
	Kill(rank int)                 // the rank's process
	Freeze(rank int, stopped bool) // all processes of the rank's machine
	Cut(rank int)                  // the rank's machine off the network
	After(d time.Duration, f func())
}

// measured tells whether the time from the threshold until it is said tells something: others wait as soon as it
// begins.
func (k *Kind) measured() bool {
	return k.Edit != nil && len(k.Reasons) == 1 &&
		(k.Reasons[0] == verdict.NotEntered || k.Reasons[0] == verdict.NotJoined)
}

// KindOf is the kind of that name; nil if there is none.
func KindOf(name string) *Kind {
	if i := slices.IndexFunc(Kinds, func(k *Kind) bool { return k.Name == name }); i >= 0 {
		return Kinds[i]
	}
	return nil
}

// place picks one of the instructions that are ok.
func (f *Fault) place(is []jobsim.Instruction, ok func(jobsim.Instruction) bool) (int, bool) {
	at := calls(is, ok)
	if len(at) == 0 {
		return 0, false
	}
	return at[f.At%len(at)], true
}

// before inserts instructions before one of the calls of the main thread.
func before(more func(f *Fault) []jobsim.Instruction) editor {
	return func(_ *Layout, f *Fault, is instructions, begin jobsim.Do, side bool) (instructions, bool) {
		at, ok := f.place(is, isCall)
		if !ok || side {
			return is, false
		}
		return insert(is, at, append([]jobsim.Instruction{begin}, more(f)...)...), true
	}
}

func hang(*Fault) []jobsim.Instruction { return []jobsim.Instruction{jobsim.Hang{}} }

func late(f *Fault) []jobsim.Instruction {
	return []jobsim.Instruction{jobsim.Compute{For: f.For}}
}

// edit replaces one of the calls that are ok; nil drops it.
func edit(ok func(jobsim.Instruction) bool, with func(*Layout, *Fault, jobsim.Instruction) instructions) editor {
	return func(l *Layout, f *Fault, is instructions, begin jobsim.Do, side bool) (instructions, bool) {
		at, found := f.place(is, ok)
		if !found || side {
			return is, false
		}
		out := insert(is[:at], at, begin)
		out = append(out, with(l, f, is[at])...)
		return append(out, is[at+1:]...), true
	}
}

func collectiveCall(i jobsim.Instruction) bool {
	c, ok := i.(jobsim.Call)
	return ok && c.Sig.Call != lifecycle.CallSend && c.Sig.Call != lifecycle.CallRecv
}

func syncCollective(i jobsim.Instruction) bool {
	c, ok := i.(jobsim.Call)
	return ok && collectiveCall(i) && !c.Async
}

func isReduce(i jobsim.Instruction) bool {
	c, ok := i.(jobsim.Call)
	return ok && c.Sig.Call == lifecycle.CallAllReduce
}

func isBroadcast(i jobsim.Instruction) bool {
	c, ok := i.(jobsim.Call)
	return ok && c.Sig.Call == lifecycle.CallBroadcast
}

func isMessage(call lifecycle.Call) func(jobsim.Instruction) bool {
	return func(i jobsim.Instruction) bool {
		c, ok := i.(jobsim.Call)
		return ok && c.Sig.Call == call
	}
}

// other makes another call of it.
func other(change func(sig *tape.Signature)) func(*Layout, *Fault, jobsim.Instruction) []jobsim.Instruction {
	return func(_ *Layout, _ *Fault, i jobsim.Instruction) []jobsim.Instruction {
		c := i.(jobsim.Call)
		change(&c.Sig)
		return []jobsim.Instruction{c}
	}
}

func hasCollectives(t *Trial, _ *Fault) bool {
	l := &t.Layout
	return l.TP > 1 || l.DP > 1 && l.Style != Goroutines || l.Loss
}

func hasPipeline(t *Trial, _ *Fault) bool { return t.Layout.PP > 1 && t.Layout.Style != Groups }

var (
	notEntered = []verdict.Reason{verdict.NotEntered}
	notJoined  = []verdict.Reason{verdict.NotJoined}
	dead       = []verdict.Reason{verdict.RankDead}
	different  = []verdict.Reason{verdict.Mismatch}
	disorder   = []verdict.Reason{verdict.NotEntered, verdict.Mismatch, verdict.Deadlock, verdict.RankDead}
)

// Kinds are all kinds of faults.
var Kinds = []*Kind{
	{Name: "healthy", Healthy: true},
	{Name: "data loader hangs", Reasons: notEntered, Edit: before(hang)},
	{Name: "compute loop", Reasons: notEntered, Edit: before(hang)},
	{Name: "file", Reasons: notEntered, Edit: before(late)},
	{Name: "lock", Reasons: notEntered, Edit: before(hang)},
	{Name: "late", Reasons: notEntered, Edit: before(late)},
	{
		Name: "side goroutine hangs", Reasons: notEntered,
		Fits: func(t *Trial, _ *Fault) bool { return t.Layout.Style == Goroutines && t.Layout.DP > 1 },
		Edit: func(_ *Layout, f *Fault, is instructions, begin jobsim.Do, side bool) (instructions, bool) {
			if at, ok := f.place(is, isCall); ok && side {
				return insert(is, at, begin, jobsim.Hang{}), true
			}
			return is, false
		},
	},
	{Name: "stop", Reasons: []verdict.Reason{verdict.RankStopped}, Process: true, Strike: func(o Outside, f *Fault) {
		o.Stop(f.Rank, true)
	}},
	{
		Name: "stop for a while", Reasons: []verdict.Reason{verdict.RankStopped}, Process: true,
		Strike: func(o Outside, f *Fault) {
			o.Stop(f.Rank, true)
			o.After(f.For, func() { o.Stop(f.Rank, false) })
		},
	},
	{Name: "kill", Reasons: dead, Process: true, Strike: func(o Outside, f *Fault) { o.Kill(f.Rank) }},
	{Name: "exit", Reasons: dead, Process: true, Edit: before(func(*Fault) []jobsim.Instruction {
		return []jobsim.Instruction{jobsim.Die{How: "it exited with 1"}}
	})},
	{Name: "panic", Reasons: dead, Process: true, Edit: before(func(*Fault) []jobsim.Instruction {
		return []jobsim.Instruction{jobsim.Die{How: "it exited with 2"}}
	})},
	{
		Name: "leave", Reasons: append(slices.Clone(dead), verdict.NotEntered), Process: true,
		Edit: before(func(*Fault) []jobsim.Instruction {
			return []jobsim.Instruction{jobsim.Leave{How: "it exited with 0"}}
		}),
	},
	{
		Name: "skip", Reasons: disorder, Optional: true, Fits: hasCollectives,
		Edit: edit(syncCollective, func(*Layout, *Fault, jobsim.Instruction) []jobsim.Instruction { return nil }),
	},
	{
		Name: "extra", Reasons: disorder, Optional: true, Fits: hasCollectives,
		Edit: edit(syncCollective, func(_ *Layout, _ *Fault, i jobsim.Instruction) []jobsim.Instruction {
			return []jobsim.Instruction{i, i}
		}),
	},
	{
		Name: "another call", Reasons: different, Fits: hasCollectives,
		Edit: edit(syncCollective, other(func(sig *tape.Signature) {
			if sig.Call == lifecycle.CallAllGather {
				sig.Call = lifecycle.CallBroadcast
			}
			sig.Call = lifecycle.CallAllGather
		})),
	},
	{
		Name: "count", Reasons: different, Fits: hasCollectives,
		Edit: edit(isReduce, other(func(sig *tape.Signature) { sig.Bytes += 8 })),
	},
	{
		Name: "type", Reasons: different, Fits: hasCollectives,
		Edit: edit(isReduce, other(func(sig *tape.Signature) { sig.DataType-- })),
	},
	{Name: "root", Reasons: different, Fits: func(t *Trial, _ *Fault) bool {
		t.Layout.Sync = true
		return true
	}, Edit: edit(isBroadcast, other(func(sig *tape.Signature) { sig.Peer = 1 }))},
	{
		Name: "reduction", Reasons: different, Fits: hasCollectives,
		Edit: edit(isReduce, other(func(sig *tape.Signature) { sig.Reduction++ })),
	},
	{Name: "order", Reasons: append(slices.Clone(disorder), verdict.Transport), Fits: func(t *Trial, _ *Fault) bool {
		l := &t.Layout
		return l.DP > 1 && l.Loss && l.Style == Blocking && l.Ranks() > l.DP
	}, Edit: func(l *Layout, f *Fault, is instructions, begin jobsim.Do, side bool) (instructions, bool) {
		loss := -1
		for i, in := range is {
			if c, ok := in.(jobsim.Call); ok && c.Comm == "world" && c.Sig.Call == lifecycle.CallAllReduce {
				loss = i
			}
		}
		at := calls(is[:max(loss, 0)], func(i jobsim.Instruction) bool {
			c, ok := i.(jobsim.Call)
			return ok && c.Comm == l.dp(f.Rank)
		})
		if loss < 0 || len(at) == 0 {
			return is, false
		}
		out := slices.Clone(is)
		last := at[len(at)-1]
		out[last], out[loss] = out[loss], out[last]
		return insert(out, last, begin), true
	}},
	{
		Name: "wrong peer", Reasons: disorder,
		Fits: func(t *Trial, f *Fault) bool { return hasPipeline(t, f) && t.Layout.PP > 2 },
		Edit: edit(isMessage(lifecycle.CallSend), func(l *Layout, f *Fault, i jobsim.Instruction) []jobsim.Instruction {
			c := i.(jobsim.Call)
			own := l.stage(f.Rank)
			for p := range l.PP {
				if q := (p + f.Peer) % l.PP; q != own && int32(q) != c.Sig.Peer {
					c.Sig.Peer = int32(q)
					break
				}
			}
			return []jobsim.Instruction{c}
		}),
	},
	{Name: "missing receive", Reasons: disorder, Fits: hasPipeline, Edit: edit(isMessage(lifecycle.CallRecv),
		func(*Layout, *Fault, jobsim.Instruction) []jobsim.Instruction { return nil })},
	{Name: "missing send", Reasons: disorder, Fits: hasPipeline, Edit: edit(isMessage(lifecycle.CallSend),
		func(*Layout, *Fault, jobsim.Instruction) []jobsim.Instruction { return nil })},
	{
		Name: "missing at start", Reasons: notJoined, Fits: atSetup,
		Edit: atInit(func(f *Fault) []jobsim.Instruction { return hang(f) }),
	},
	{Name: "late at start", Reasons: notJoined, Fits: atSetup, Edit: atInit(late)},
	{
		Name: "missing at a split", Reasons: notJoined, Fits: atSetup,
		Edit: atSplit(func(f *Fault) []jobsim.Instruction { return hang(f) }),
	},
	{Name: "late at a split", Reasons: notJoined, Fits: atSetup, Edit: atSplit(late)},
	{
		Name: "short epoch", Reasons: disorder,
		Edit: func(l *Layout, f *Fault, is instructions, begin jobsim.Do, side bool) (instructions, bool) {
			if side {
				return []jobsim.Instruction{jobsim.Hang{}}, true
			}
			out := append([]jobsim.Instruction{begin}, l.teardown(f.Rank)...)
			return append(out, jobsim.Leave{How: "it exited with 0"}), true
		},
	},
	{
		Name: "early destroy", Reasons: notEntered,
		Edit: ends(func(comm string) jobsim.Instruction { return jobsim.Destroy{Comm: comm} }),
	},
	{Name: "abort", Reasons: notEntered, Edit: ends(func(comm string) jobsim.Instruction {
		return jobsim.Abort{Comm: comm, Cause: "loss is NaN"}
	})},
	{
		Name: "straggler", Reasons: []verdict.Reason{verdict.Straggler}, Always: true, Long: true,
		Fits: func(t *Trial, f *Fault) bool {
			t.Steps, f.Step = 2000, 2
			t.Layout.Compute, t.Layout.EpochSteps = 5*time.Millisecond, 1000
			l := &t.Layout
			return l.Style == Blocking && l.EP == 1 && l.PP == 1 && (l.TP > 1 || l.DP > 1)
		},
		Edit: before(func(*Fault) []jobsim.Instruction { return []jobsim.Instruction{jobsim.Compute{For: straggle}} }),
	},
	{Name: "checkpoint", Healthy: true, Edit: before(func(*Fault) []jobsim.Instruction {
		return []jobsim.Instruction{jobsim.Compute{For: Threshold * 3 / 5}}
	})},
	{Name: "evaluation", Healthy: true, All: true, Edit: func(
		_ *Layout, f *Fault, is instructions, begin jobsim.Do, side bool,
	) (instructions, bool) {
		if side {
			return is, false
		}
		return insert(is, 0, begin, jobsim.Compute{For: f.For}), true
	}},
	{Name: "slow but healthy", Healthy: true, Fits: func(t *Trial, _ *Fault) bool {
		l := &t.Layout
		l.Compute = Threshold * 3 / 5 / time.Duration(l.Layers*(l.PP+l.Micro)*2)
		return true
	}},
	{Name: "oversubscription", Healthy: true, Always: true, All: true, Edit: before(func(f *Fault) []jobsim.Instruction {
		return []jobsim.Instruction{jobsim.Compute{For: f.jitter(300 * time.Millisecond)}}
	}), Fits: func(t *Trial, f *Fault) bool {
		f.Step = 0
		return true
	}},
	{
		Name: "freeze of a machine", Reasons: []verdict.Reason{verdict.RankUnreachable, verdict.RankStopped}, Host: true,
		Fits: severalHosts, Strike: func(o Outside, f *Fault) {
			o.Freeze(f.Rank, true)
			o.After(f.For, func() { o.Freeze(f.Rank, false) })
		},
	},
	{
		Name: "cable", Reasons: []verdict.Reason{verdict.RankUnreachable, verdict.Transport}, Host: true, Sides: true,
		Unreal: true, Fits: severalHosts, Strike: func(o Outside, f *Fault) { o.Cut(f.Rank) },
	},
	{Name: "timeout", Reasons: notEntered, Edit: before(hang), Fits: func(t *Trial, _ *Fault) bool {
		t.Timeout = Threshold * 3 / 5
		return t.Layout.Style != Groups
	}},
	{Name: "two faults", Two: true},
}

func severalHosts(t *Trial, _ *Fault) bool { return t.Layout.Hosts > 1 }

// jitter is another duration at each call, up to most.
func (f *Fault) jitter(most time.Duration) time.Duration {
	f.Peer = (f.Peer*1103515245 + 12345) & (1<<30 - 1)
	return time.Duration(f.Peer) * most >> 30
}

func atSetup(_ *Trial, f *Fault) bool {
	f.Step = setupStep
	return true
}

func atInit(more func(*Fault) []jobsim.Instruction) editor {
	return func(_ *Layout, f *Fault, is instructions, begin jobsim.Do, _ bool) (instructions, bool) {
		return insert(is, 0, append([]jobsim.Instruction{begin}, more(f)...)...), true
	}
}

func atSplit(more func(*Fault) []jobsim.Instruction) editor {
	return func(_ *Layout, f *Fault, is instructions, begin jobsim.Do, _ bool) (instructions, bool) {
		at, ok := f.place(is, func(i jobsim.Instruction) bool { _, split := i.(jobsim.Split); return split })
		if !ok {
			return is, false
		}
		return insert(is, at, append([]jobsim.Instruction{begin}, more(f)...)...), true
	}
}

// ends lets the rank end the communicator of one of its calls right before it, and do nothing more.
func ends(how func(comm string) jobsim.Instruction) editor {
	return func(_ *Layout, f *Fault, is instructions, begin jobsim.Do, side bool) (instructions, bool) {
		at, ok := f.place(is, isCall)
		if !ok || side {
			return is, false
		}
		comm := ""
		switch c := is[at].(type) {
		case jobsim.Call:
			comm = c.Comm
		case jobsim.Group:
			comm = c.Comm
		}
		return insert(is, at, begin, how(comm), jobsim.Hang{}), true
	}
}

// straggle is how much longer a straggler computes.
const straggle = 3 * time.Second / 10
