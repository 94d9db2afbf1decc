package model

import (
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Act is one rank's part in an act of a communicator's life.
type Act struct {
	Progress
	Comm  *Comm
	Kind  tape.Act
	Seq   uint64
	First tape.LifeRecord // the first record of it that was read

	PhaseStart int64
	PhaseText  string  // a note on Phase for people; mostly none
	Phases     []Phase // that have ended
	Reported   int     // how many of Phases a reader has reported

	Peer int32
	Text string

	slotless bool // its communicator found no free slot
}

// Unended tells whether the act is a group that the program has not ended, so that its calls have not started. Other
// groups begin when the program has ended them.
func (a *Act) Unended() bool {
	return a.Kind == tape.ActGroup && a.First.Call == lifecycle.CallGroupStart
}

// OtherRanks in Act.Without stands for unknown ranks.
const OtherRanks = -1

const (
	withoutRanks = "without ranks " // begins the text of a shrink's start: "without ranks 3,5-9"
	mostWithout  = 1 << 16
)

// Without returns the ranks of the communicator that a shrink leaves out: they take no part in it.
func (a *Act) Without() (ranks []int) {
	list, is := strings.CutPrefix(a.First.Text, withoutRanks)
	if a.Kind != tape.ActShrink || !is {
		return nil
	}
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if isRange && err == nil {
			last, err = strconv.Atoi(to)
		}
		if err != nil || first < 0 || last < first || last-first >= mostWithout-len(ranks) {
			return append(ranks, OtherRanks)
		}
		for r := first; r <= last; r++ {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// Phase is a part of an act.
type Phase struct {
	Phase      tape.Phase
	Start, End int64
	Text       string // as Act.PhaseText
}

// newAct makes an act from its first record, which may have the act's start.
func newAct(c *Comm, r *tape.LifeRecord) *Act {
	a := &Act{Comm: c, Kind: r.Act, Seq: r.Seq, First: *r}
	if a.Start = r.Time; r.Start > 0 {
		a.Start = min(r.Start, r.Time)
	}
	return a
}

// act finds an open act; nil if it is unknown.
func (c *Comm) act(kind tape.Act, seq uint64) *Act {
	for _, acts := range [2][]*Act{c.Acts, c.cut} {
		for _, a := range acts {
			if a.Kind == kind && a.Seq == seq {
				return a
			}
		}
	}
	return nil
}

// beginAct opens an act. It drops an open act of the same number or, if there are too many, the oldest.
func (p *Process) beginAct(c *Comm, r *tape.LifeRecord, slot int) *Act {
	a := newAct(c, r)
	a.Peer, a.slotless = -1, slot < 0
	before := c.act(r.Act, r.Seq)
	if before == nil && len(c.Acts) >= maxActs {
		before = c.Acts[0]
	}
	if before != nil {
		c.remove(before)
		p.dropped = append(p.dropped, before)
	}
	c.Acts, c.Latest = append(c.Acts, a), a
	p.oldest = min(p.oldest, a.Start)
	return a
}

func (c *Comm) remove(a *Act) {
	is := func(o *Act) bool { return o == a }
	c.Acts, c.cut = slices.DeleteFunc(c.Acts, is), slices.DeleteFunc(c.cut, is)
}

func (a *Act) enter(phase tape.Phase, text string, now int64) {
	if a.Phase != tape.PhaseNone {
		a.Phases = append(a.Phases, Phase{a.Phase, a.PhaseStart, now, a.PhaseText})
	}
	a.Phase, a.PhaseStart, a.PhaseText = phase, now, text
}

// endAct closes an act. If only its end was read, began is true.
func (p *Process) endAct(c *Comm, r *tape.LifeRecord) (a *Act, began bool) {
	if a = c.act(r.Act, r.Seq); a == nil {
		a, began = newAct(c, r), true
		c.Latest = a
	}
	a.enter(tape.PhaseNone, "", r.Time)
	a.End, a.Code, a.Peer, a.Text = r.Time, r.Code, r.Peer, r.Text
	c.remove(a)
	if r.Act == tape.ActGroup && r.Code == lifecycle.CodeOK && !a.Unended() {
		// Groups of a communicator are made one after another: those with lower numbers that began earlier have ended
		// too. Groups with and without collectives have numbers of their own, so the number alone is not enough.
		c.Acts = slices.DeleteFunc(c.Acts, func(o *Act) bool {
			over := o.Kind == tape.ActGroup && o.Seq < r.Seq && o.Start < a.Start && !o.Unended()
			if over {
				p.dropped = append(p.dropped, o)
			}
			return over
		})
	}
	return a, began
}
