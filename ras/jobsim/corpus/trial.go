package corpus

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/ras/jobsim"
)

// Threshold is the age at which something stalls in the trials.
const Threshold = 5 * time.Second

// Trial is a job and its faults.
type Trial struct {
	Seed    uint64
	Layout  Layout
	Faults  []Fault       // one or two, also of a healthy kind
	Steps   int           // of the training
	Timeout time.Duration // of the context of each call; 0: none
	End     End
	EndAt   time.Duration // after which a healthy job comes to its End
	Errors  jobsim.Reaction
}

// End is how a trial ends after its diagnosis.
type End string

// The ends.
const (
	LeftAlone    End = "left alone"     // it continues or hangs while its tapes are read
	Cancelled    End = "cancelled"      // SIGTERM to its launcher
	KilledAtOnce End = "killed at once" // SIGKILL to all processes
	KilledInTurn End = "killed in turn" // SIGKILL to one after the other, some milliseconds apart
)

var allEnds = [...]End{LeftAlone, Cancelled, KilledAtOnce, KilledInTurn}

// Fault is an instance of a Kind.
type Fault struct {
	Kind *Kind
	Rank int // at fault
	Step int // of its program
	At   int // selects one of the instructions at which it can be
	For  time.Duration
	Peer int // selects another rank of its communicator, or seeds jitter

	// Since is when it began, which playing sets; 0: not yet.
	Since int64
}

// String is "skip by rank 3 in step 7".
func (f *Fault) String() string {
	if f.Kind.Healthy {
		return f.Kind.Name
	}
	return fmt.Sprintf("%s by rank %d in step %d", f.Kind.Name, f.Rank, f.Step)
}

// String tells the faults, the layout and the end.
func (t *Trial) String() string {
	var faults []string
	for i := range t.Faults {
		faults = append(faults, t.Faults[i].String())
	}
	return fmt.Sprintf("seed %d: %s; %s; %s", t.Seed, strings.Join(faults, ", "), t.Layout.String(), t.End)
}

// Draw draws a trial of at most so many ranks with a fault of that kind.
func Draw(seed uint64, most int, kind *Kind) *Trial {
	r := rand.New(rand.NewPCG(seed, 12))
	for {
		t := &Trial{
			Seed: seed, Layout: drawLayout(r, most), Steps: 4 + r.IntN(12), End: allEnds[r.IntN(len(allEnds))],
			EndAt: time.Duration(r.IntN(int(20 * time.Second))), Errors: jobsim.Reaction(r.IntN(3)),
		}
		draw := func(kind *Kind) bool {
			f := Fault{
				Kind: kind, Rank: r.IntN(t.Layout.Ranks()), Step: r.IntN(t.Steps), At: r.IntN(1 << 20),
				Peer: r.IntN(1 << 20), For: time.Duration(8+r.IntN(30)) * time.Second,
			}
			if kind.Strike != None {
				t.Steps = endless // it trains until the strike
			}
			if kind.Fits != nil && !kind.Fits(t, &f) {
				return false
			}
			t.Faults = append(t.Faults, f)
			return true
		}
		if kind.Two {
			single := slices.DeleteFunc(slices.Clone(Kinds), func(k *Kind) bool {
				return k.Two || k.Healthy || k.Optional || k.Strike != None
			})
			first, second := single[r.IntN(len(single))], single[r.IntN(len(single))]
			if draw(first) && draw(second) && t.Faults[0].Rank != t.Faults[1].Rank {
				return t
			}
		} else if draw(kind) {
			return t
		}
	}
}

// The steps before the first and after the last, and more steps than a trial has time for.
const (
	setupStep    = -1
	teardownStep = -2
	endless      = 1 << 30
)

// Program makes the threads of a rank. now is the clock of Fault.Since.
func (t *Trial) Program(rank int, now func() int64) []jobsim.Program {
	l := &t.Layout
	ready, summed := &jobsim.Gate{}, &jobsim.Gate{}
	threads := []jobsim.Program{sequence(func(part int) instructions {
		switch step := part - 1; {
		case part == 0:
			return t.edited(rank, setupStep, l.setup(rank), false, now)
		case step < t.Steps:
			is, side := l.step(rank, step)
			is = t.edited(rank, step, is, false, now)
			if len(side) > 0 {
				is = slices.Concat(instructions{jobsim.Open{Gate: ready}}, is, instructions{jobsim.Pass{Gate: summed}})
			}
			return is
		case step == t.Steps:
			is := t.edited(rank, teardownStep, l.teardown(rank), false, now)
			return append(is, jobsim.Leave{Together: true})
		}
		return nil
	})}
	if l.Style == Goroutines && l.DP > 1 {
		threads = append(threads, sequence(func(step int) instructions {
			if step >= t.Steps {
				return nil
			}
			_, side := l.step(rank, step)
			side = t.edited(rank, step, side, true, now)
			return slices.Concat(instructions{jobsim.Pass{Gate: ready}}, side, instructions{jobsim.Open{Gate: summed}})
		}))
	}
	return threads
}

// edited puts the rank's faults into the instructions of a step.
func (t *Trial) edited(rank, step int, is instructions, side bool, now func() int64) instructions {
	for i := range t.Faults {
		f := &t.Faults[i]
		edit := f.Kind.Edit
		if side {
			edit = f.Kind.Side
		}
		if edit == nil || f.Step != step && (!f.Kind.Always || step < f.Step) || f.Rank != rank && !f.Kind.All {
			continue
		}
		is = edit(&t.Layout, f, is, jobsim.Do{F: func() {
			if f.Since == 0 {
				f.Since = now()
			}
		}})
	}
	for i := range is {
		if c, ok := is[i].(jobsim.Call); ok {
			c.Timeout = t.Timeout
			is[i] = c
		}
	}
	return is
}

// sequence is a program of parts, up to the first empty one.
func sequence(part func(n int) instructions) jobsim.Program {
	var now instructions
	n := 0
	return func() jobsim.Instruction {
		if len(now) == 0 {
			now = part(n)
			n++
		}
		if len(now) == 0 {
			return nil
		}
		next := now[0]
		now = now[1:]
		return next
	}
}
