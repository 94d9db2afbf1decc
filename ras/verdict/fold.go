package verdict

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Fold fills in the communicators of a process's model at the time now of the tape's clock. The note has its member and
// rank already.
func (n *Note) Fold(p *model.Process, now int64) {
	n.Awake, n.Paused = time.Duration(p.Awake(now)), time.Duration(p.Paused())
	n.Terminated = time.Duration(p.Told(now))
	slots := map[uint32]int{} // by generation
	for _, c := range slices.Concat(slices.Collect(p.Comms()), p.Ended()) {
		slots[c.Generation] = len(n.Slots)
		n.Slots = append(n.Slots, slotOf(p, c, n.JobSize, now))
	}
	n.queue(p, slots, now)
	for _, r := range p.Ranks() {
		if h := n.habit(p, r, slots, now); h.Odd != nil || h.Next != nil || h.Trail != nil || h.Failed != nil {
			n.Habits = append(n.Habits, h)
		}
	}
}

// launchedTogether is the time within which operations of several communicators count as called in one group, if it is
// not known when the call returned. A stream performs the operations of one group together.
const launchedTogether = time.Millisecond

// returned is when the call of a slot's oldest operation on its stream returned; for a call in a group, when the group
// ended.
func returned(s *tape.Slot) int64 {
	if s.Launched-s.Completed == 1 && s.LastEnd >= s.OpStart {
		return s.LastEnd
	}
	return s.OpStart + int64(launchedTogether)
}

// queue finds the operations that a stream has not reached because it has not completed earlier launches on other
// communicators. The age of a queued operation is the time since its stream last made progress.
func (n *Note) queue(p *model.Process, slots map[uint32]int, now int64) {
	onStream := func(c *model.Comm) bool { return c.Slot != nil && c.Slot.Stream != 0 && c.InFlight() != nil }
	first, moved := map[uint32]*tape.Slot{}, map[uint32]int64{}
	for c := range p.Comms() {
		if c.Slot != nil && c.Slot.Stream != 0 {
			moved[c.Slot.Stream] = max(moved[c.Slot.Stream], c.Moved)
		}
		if onStream(c) {
			if s := first[c.Slot.Stream]; s == nil || c.Slot.OpStart < s.OpStart {
				first[c.Slot.Stream] = c.Slot
			}
		}
	}
	for c := range p.Comms() {
		s := &n.Slots[slots[c.Generation]]
		if onStream(c) && s.Phase == tape.PhaseStream && !s.Reached && c.Slot.OpStart > returned(first[c.Slot.Stream]) {
			s.Phase = tape.PhaseQueued
		}
		if s.queued() && c.Slot != nil && c.Slot.OpStart < moved[c.Slot.Stream] {
			s.Age = age(moved[c.Slot.Stream], now)
		}
	}
}

// slotOf is one communicator as a note has it.
func slotOf(p *model.Process, c *model.Comm, jobSize int, now int64) Slot {
	s := Slot{
		Comm: c.ID, Was: c.Was, Parent: c.Parent, Name: c.Name, Rank: c.Rank, Size: c.Size, Root: c.Of.Root,
		Job: p.JobRank(c.Of, jobSize), State: c.State, Wait: -1,
		Begun: c.Begun, Done: c.Done, Messages: maps.Clone(c.Messages), Counted: c.Counted,
		Enqueues: c.NCCL(), Groups: c.Groups, Splits: c.Splits, Made: c.Made, Captured: c.Captured,
		Created: age(c.Created, now),
	}
	switch {
	case c.Slot != nil && c.Slot.Marked:
		s.Proven = c.Slot.Proven
	case c.Slot != nil || !c.Enqueues(): // else its marks are gone
		s.Proven = c.Done
	}
	if c.Place.PXN == tape.PXNOn {
		s.Locals, s.Node, s.Local = c.Place.Locals, c.Place.Node, c.Place.Local
	}
	if o := c.Unasked(); o != nil {
		s.Seq, s.Op, s.Age = o.Seq, o.Signature, age(max(o.Start, c.Moved), now)
		s.Unproven = p.Unproven(c, now)
	} else if o := c.InFlight(); o != nil {
		s.InFlight, s.Seq, s.Op, s.Phase = 1, o.Seq, o.Signature, o.Phase
		if c.Slot != nil {
			s.InFlight, s.Reached = max(s.InFlight, c.Slot.Launched-c.Slot.Completed), c.Slot.Reached
		}
		s.Age, s.Stalled = age(o.Since(), now), p.Stalled(o, now)
		if o.Wait >= 0 {
			s.Wait, s.WaitAge = int(o.Wait), age(max(o.WaitSince, o.Moved), now)
		}
	} else if o := &c.Last; o.End > 0 {
		s.Seq, s.Op, s.Age, s.Took = o.Seq, o.Signature, age(o.End, now), age(o.Start, o.End)
		if s.Unproven = p.Unproven(c, now); s.Unproven {
			s.Age = age(max(o.End, c.Moved), now)
		}
		s.Refused = o.Refused()
		if s.Failed = o.Code != lifecycle.CodeOK && !s.Refused || failedOnDevice(c, o); s.Failed {
			s.Stalled, s.Wait = p.Stalled(o, now), int(o.Wait)
		}
	}
	for _, a := range c.OpenActs() {
		s.Acts = append(s.Acts, OpenAct{
			Act: a.Kind, Seq: a.Seq, Phase: a.Phase, Age: age(a.Start, now), Stalled: p.Stalled(a, now),
			Site: siteOf(a), Without: a.Without(), Child: a.First.Child,
			Joins:   a.Kind == tape.ActInit && a.First.Call == lifecycle.CallGrow && c.Parent.IsZero(),
			Unended: a.Unended(),
		})
	}
	if f := c.Failure; f != nil {
		s.Failure = &Failure{
			Code: f.Code, Call: f.Call, Seq: f.Seq, Peer: int(f.Peer), Wait: int(f.Wait), Text: f.Text,
			Age: age(f.Time, now),
		}
	}
	if a := c.End; a != nil && a.Kind == tape.ActInit {
		s.Left = &Left{Act: a.Kind, Age: age(a.End, now), Site: siteOf(a), Text: a.Text}
	} else {
		s.Left = leftBy(a, now)
	}
	s.Revoked = leftBy(c.Revoked, now)
	waits, over := c.Waits(now)
	s.Waited, s.Window, s.Stay = waits, time.Duration(over), c.Stay
	return s
}

// leftBy is an act by which a rank ended or revoked a communicator; nil if there is none.
func leftBy(a *model.Act, now int64) *Left {
	if a == nil {
		return nil
	}
	return &Left{Act: a.Kind, Age: age(a.Start, now), Took: age(a.Start, a.End), Site: siteOf(a), Text: a.Text}
}

// failedOnDevice reports whether a call that launched without an error is the one that made the communicator fail.
func failedOnDevice(c *model.Comm, o *model.Op) bool {
	f := c.Failure
	return f != nil && f.Seq == o.Seq && f.Call == o.Signature.Call && o.Signature.Call.IsCollective()
}

func age(since, now int64) time.Duration {
	if since <= 0 || since > now {
		return 0
	}
	return time.Duration(now - since)
}

// siteOf is where an act was called: a line of a file, or in C an offset.
func siteOf(a *model.Act) string {
	s := a.First.Site
	if s.Line == 0 {
		return s.Func
	}
	return fmt.Sprintf("%s:%d", path.Base(s.File), s.Line)
}

// habit returns the habit of one of the process's ranks, by its history. It also sets the lanes of the rank's slots;
// slots has their indices by generation.
func (n *Note) habit(p *model.Process, r *model.Rank, slots map[uint32]int, now int64) Habit {
	h := Habit{Root: r.Root}
	var inFlight []model.Call
	for c := range p.Comms() {
		for _, o := range c.Ops {
			if c.Of == r {
				inFlight = append(inFlight, c.CallOf(o))
			}
		}
	}
	habit := r.History.Habit(inFlight...)
	for lane, members := range habit.Lanes {
		for _, generation := range members {
			if i, known := slots[generation]; known {
				n.Slots[i].Lane, n.Slots[i].Steps = lane, habit.Steps[lane] > 0
				for _, other := range habit.Aside[generation] {
					if k, known := slots[other]; known {
						n.Slots[i].Aside = append(n.Slots[i].Aside, k)
					}
				}
			}
		}
	}
	for _, o := range habit.Odd {
		did, instead := usualOf(p, o.Did, o.Before), usualOf(p, o.Usual, o.Times)
		if did != nil && instead != nil {
			did.Seq = o.Did.Seq
			h.Odd = append(h.Odd, Odd{*did, *instead})
		}
	}
	if habit.Next != nil && len(inFlight) == 0 {
		h.Next = usualOf(p, habit.Next.Usual, habit.Next.Times)
	}
	for _, c := range habit.Trail {
		if i, known := slots[c.Generation]; known {
			h.Trail = append(h.Trail, mark(i, &c))
		}
	}
	if a := r.LastAct; a != nil && a.Code != lifecycle.CodeOK {
		h.Failed = &FailedAct{Act: a.Kind, Comm: a.Comm.ID, Name: a.Comm.Name, Text: a.Text, Age: age(a.End, now)}
	}
	return h
}

func usualOf(p *model.Process, c model.Call, times int) *Usual {
	comm := p.Known(c.Generation)
	if comm == nil {
		return nil
	}
	return &Usual{Comm: comm.ID, Name: comm.Name, Op: c.Signature, Times: times}
}
