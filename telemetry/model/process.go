package model

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Limits of a Process, far above what a program needs unless many ends were overwritten unread.
const (
	maxComms = 16 << 10 // communicators
	maxActs  = 1 << 10  // open acts of a communicator
	maxOps   = 64       // operations of a communicator, besides the one in its slot
	maxEnded = 64       // communicators that this process ended last
)

// Process is the state of one process. The zero value is not ready; see New.
type Process struct {
	comms   map[uint32]*Comm // by generation
	ended   []*Comm          // that the process ended last, oldest first
	normal  normals
	ranks   []*Rank          // in the order in which they came
	roots   map[uint32]*Rank // by the communicator from which the rank's others descend
	limits  Limits
	paused  int64           // how long it has paused in all
	resumed int64           // when the process ran again after its last pause; 0: it never paused
	told    int64           // when the process was told to end by SIGTERM; 0: never
	later   map[uint32]bool // communicators that were made after the moment of Until
	looks   uint64
	watched int64   // the time of the last Watch
	oldest  int64   // no activity began before this time
	late    []*Comm // the last list of Late
	dropped []*Act  // open acts that were forgotten since the last step

	unproven []*Comm // that may be Unproven, at the last look

	scratch Op // an operation of which only the end was read
}

// New makes the model of a process before its first event. The limits must be valid.
func New(limits Limits) *Process {
	return &Process{
		comms: make(map[uint32]*Comm), roots: make(map[uint32]*Rank), limits: limits.complete(), oldest: math.MaxInt64,
	}
}

// Step is one event, with the communicator, act or operation that it is about. It is valid until the next call of
// Apply.
type Step struct {
	*tape.Event
	// Comm is nil if the tape no longer describes the communicator, or there are too many.
	Comm *Comm
	// Was is the former id of Comm, if this event changed it: until its ranks have met, a world has the same id as the
	// worlds of the job's other runs.
	Was lifecycle.CommID
	// Act is the act that a record of an act is about; nil for other records.
	Act *Act
	// Op is the operation that a record of an operation is about.
	Op *Op
	// Began tells that this event is the first one known of Act.
	Began bool
	// Failed tells that the communicator failed with this event, for the first time.
	Failed bool
	// Dropped are open acts that were forgotten since the last step, because their ends were missed.
	Dropped []*Act
}

// Info returns what is known about the communicator.
func (s *Step) Info() *tape.CommInfo {
	if s.Comm != nil {
		return &s.Comm.CommInfo
	}
	return &s.Event.Comm
}

// Apply takes the tape's next event. It allocates nothing for an operation that never waited.
func (p *Process) Apply(ev *tape.Event) Step {
	s := Step{Event: ev}
	joins := ev.IsLife && ev.Life.Act == tape.ActInit && ev.Life.Call == lifecycle.CallGrow
	if s.Comm = p.comm(ev.Generation, ev.Root, &ev.Comm, joins); s.Comm == nil {
		return s
	}
	s.Was, s.Comm.was = s.Comm.was, lifecycle.CommID{}
	if ev.IsLife {
		p.applyLife(&s, &ev.Life)
	} else {
		p.applyOp(&s, &ev.Op)
	}
	if len(p.dropped) > 0 {
		s.Dropped, p.dropped = p.dropped, nil
	}
	return s
}

// comm returns the communicator of that generation, live or recently ended, or a new one; nil without a description or
// room. joins says that the rank takes part in the growth of a communicator: if it has none of that communicator's
// parent, its number there is not the job's.
func (p *Process) comm(generation, root uint32, info *tape.CommInfo, joins bool) *Comm {
	c := p.Known(generation)
	if c == nil {
		if info.ID.IsZero() || len(p.comms) >= maxComms {
			return nil
		}
		c = &Comm{CommInfo: *info, Generation: generation, root: cmp.Or(root, generation), wait: -1, seen: p.looks}
		c.Of = p.rankOf(c)
		p.comms[generation] = c
	}
	if !info.ID.IsZero() {
		if c.ID != info.ID {
			c.was, c.Was = c.ID, c.ID
		}
		c.CommInfo = *info // a child of a split learns its rank late
	}
	c.joined = c.joined || joins
	if r := c.Of; c.root == generation && c.Parent.IsZero() && c.Rank >= 0 && c.Size > r.Size &&
		(!c.joined || r.Size <= 1) {
		r.Number, r.Size = c.Rank, c.Size
	}
	return c
}

// Rank is one rank of the job, of which a process may have several.
type Rank struct {
	Root         uint32 // its first communicator
	Number, Size int    // in the largest communicator without a parent; -1 if there is none
	History      History
	LastAct      *Act // the last one that ended; nil if none has
}

// JobRank is a rank's number in a job of at least so many ranks, as communicators tell it; -1 if they don't. If another
// rank of the process has a larger communicator, that numbers the job: this one is made of some ranks of the job, and
// of which of the process's isn't known.
func (p *Process) JobRank(r *Rank, atLeast int) int {
	larger := func(o *Rank) bool { return o.Size > r.Size }
	if r.Number < 0 || r.Size < atLeast || slices.ContainsFunc(p.ranks, larger) {
		return -1
	}
	return r.Number
}

// Name is a rank of a communicator for people: "rank 3" if it is the job's, as in the largest communicator without a
// parent, and else `rank 3 of "dp"`.
func (p *Process) Name(c *Comm, rank int) string {
	own := c.Parent.IsZero() && (c.Of == nil || c.Of.Number == c.Rank && c.Of.Size == c.Size)
	if own && !slices.ContainsFunc(p.ranks, func(r *Rank) bool { return r.Size > c.Size }) {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("rank %d of %q", rank, words.Line(cmp.Or(c.Name, c.ID.Short())))
}

// Limits of the ranks of a process.
const (
	maxRanks = 1 << 10
	maxRoots = 1 << 12
)

// rankOf returns the rank that a new communicator belongs to: the rank of the communicator from which it descends. A
// communicator without a parent belongs to the process's only rank or, if the process has several, to the one with the
// same number. A process has several ranks if it holds two ranks of one communicator; whose the communicators are that
// it made before that one isn't known then.
func (p *Process) rankOf(c *Comm) *Rank {
	if r := p.roots[c.root]; r != nil {
		return r
	}
	var found *Rank
	others := map[*Rank]bool{} // that hold another rank of the communicator
	for _, o := range p.comms {
		if o.ID == c.ID {
			p.disown(o)
			others[o.Of] = true
		}
	}
	for _, r := range p.ranks {
		if !others[r] && (len(p.ranks) == 1 || c.Parent.IsZero() && r.Number == c.Rank && r.Size == c.Size) {
			found = r
		}
	}
	if found == nil {
		found = &Rank{Root: c.root, Number: -1}
		if len(p.ranks) < maxRanks {
			p.ranks = append(p.ranks, found)
		}
	}
	if len(p.roots) >= maxRoots {
		live := map[uint32]bool{}
		for _, o := range p.comms {
			live[o.root] = true
		}
		maps.DeleteFunc(p.roots, func(root uint32, _ *Rank) bool { return !live[root] })
	}
	if len(p.roots) < maxRoots {
		p.roots[c.root] = found
	}
	return found
}

// disown takes the communicators that were made before c from c's rank, if the process seemed to have no other one, and
// gives them to a rank without a number.
func (p *Process) disown(c *Comm) {
	r, unknown := c.Of, &Rank{Root: c.Of.Root, Number: -1}
	if r.Root == c.root || len(p.ranks) > 1 {
		return
	}
	for root, of := range p.roots {
		if of == r && root < c.root {
			p.roots[root] = unknown
		}
	}
	for _, o := range p.comms {
		if o.Of == r && o.root < c.root {
			o.Of = unknown
		}
	}
	r.Root = c.root
	p.ranks = append(p.ranks, unknown)
}

// Comm is the live communicator of that generation; nil if there is none.
func (p *Process) Comm(generation uint32) *Comm { return p.comms[generation] }

// Comms yields the live communicators, in the order in which they were made.
func (p *Process) Comms() iter.Seq[*Comm] {
	return slices.Values(slices.SortedFunc(maps.Values(p.comms), byGeneration))
}

func byGeneration(a, b *Comm) int { return cmp.Compare(a.Generation, b.Generation) }

// Ended lists the communicators that the process ended last, the oldest first.
func (p *Process) Ended() []*Comm { return p.ended }

// OpenActs lists the acts that have begun and not ended, including those of recently ended communicators, in the order
// of their starts.
func (p *Process) OpenActs() []*Act {
	var all []*Act
	for _, c := range p.comms {
		all = append(all, c.Acts...)
	}
	for _, c := range p.ended {
		all = append(all, c.cut...)
	}
	slices.SortFunc(all, func(a, b *Act) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Comm.Generation, b.Comm.Generation),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Seq, b.Seq))
	})
	return all
}

// end moves a communicator from the live ones to the ended ones.
func (p *Process) end(c *Comm) {
	if p.comms[c.Generation] != c {
		return // it had ended before
	}
	delete(p.comms, c.Generation)
	c.cut, c.Acts, c.Ops = c.Acts, nil, nil
	if len(p.ended) >= maxEnded {
		p.dropped = append(p.dropped, p.ended[0].cut...)
		p.ended = slices.Delete(p.ended, 0, 1)
	}
	p.ended = append(p.ended, c)
}

// Look applies the in-flight table of one moment, and the tallies. Events before that moment may be applied later, and
// some after it may have been applied. A communicator that is missing in two tables in a row has ended, even if the
// record of its end was missed.
func (p *Process) Look(slots []tape.Slot, tallies []tape.Tally) {
	p.looks++
	p.unproven = p.unproven[:0]
	seen := 0
	for i := range slots {
		s := &slots[i]
		c := p.comms[s.Generation]
		if c == nil || c.changed || c.Slot == nil || *c.Slot != *s {
			if c = p.comm(s.Generation, s.Root, &s.CommInfo, false); c == nil || p.comms[s.Generation] != c {
				continue // no room, or it has ended since the table was read
			}
			p.look(c, s)
		}
		c.seen = p.looks
		seen++
		if s.Unproven || c.Unasked() != nil {
			p.unproven = append(p.unproven, c)
		}
	}
	if seen < len(p.comms) {
		p.forget(func(c *Comm) bool { return c.seen+1 < p.looks })
	}
	p.Learn(tallies)
}

// Watch notes what devices do, and which have made progress since the last call. Call it after a Look at the time now.
// A program may launch more work than its device can do within any threshold, so an operation that a device has just
// reached is not late.
func (p *Process) Watch(now int64) {
	took := min(now-p.watched, longestLook)
	for _, c := range p.comms {
		if c.Slot != nil && c.Slot.Marked {
			if c.progress != c.Slot.Progress {
				c.move(p.watched)
			}
			c.progress = c.Slot.Progress
		}
		c.stay(p, now, took)
	}
	p.watched = now
}

// move notes that the communicator's device reached the operation that is in flight now after the given time.
func (c *Comm) move(after int64) {
	c.Moved = max(c.Moved, after)
	if o := c.InFlight(); o != nil {
		o.Moved = c.Moved
	}
}

// Devices returns what is known about the devices of communicators, by generation.
func (p *Process) Devices() map[uint32]Device {
	devices := map[uint32]Device{}
	for generation, c := range p.comms {
		if c.Device != (Device{}) {
			devices[generation] = c.Device
		}
	}
	return devices
}

// DevicesAs takes over what another model of the same process knows: its Devices.
func (p *Process) DevicesAs(devices map[uint32]Device) {
	for generation, d := range devices {
		if c := p.comms[generation]; c != nil {
			c.move(d.Moved)
			c.Stay = d.Stay
		}
	}
}

// StaysAs takes over how devices spent their time before the moment of this model, by generation.
func (p *Process) StaysAs(stays map[uint32]Stay) {
	for generation, c := range p.comms {
		c.Stay = stays[generation]
	}
}

// Forget drops the communicators that the last Look didn't find, unless they are in the table before, which was read
// before the events: a communicator that ended in between has its end on the tape, but that may not have been applied.
// Communicators that had no slot because the table was full stay while they have an open act.
func (p *Process) Forget(before []tape.Slot) {
	p.forget(func(c *Comm) bool {
		return c.seen < p.looks &&
			!slices.ContainsFunc(before, func(s tape.Slot) bool { return s.Generation == c.Generation })
	})
}

func (p *Process) forget(gone func(*Comm) bool) {
	maps.DeleteFunc(p.comms, func(_ uint32, c *Comm) bool {
		if !gone(c) || slices.ContainsFunc(c.Acts, func(a *Act) bool { return a.slotless }) {
			return false
		}
		p.dropped = append(p.dropped, c.Acts...)
		return true
	})
}

// Known is the communicator of that generation, live or recently ended; nil if there is none.
func (p *Process) Known(generation uint32) *Comm {
	if c := p.comms[generation]; c != nil {
		return c
	}
	for _, c := range p.ended {
		if c.Generation == generation {
			return c
		}
	}
	return nil
}

// Ranks lists the ranks of the process, in the order in which they came.
func (p *Process) Ranks() []*Rank { return p.ranks }

// Until is Apply for the model of a past moment t. For an event after t, it applies only what the event says about the
// time until t: an operation or act that began before t was in progress.
func (p *Process) Until(ev *tape.Event, t int64) {
	if ev.Time() <= t {
		p.Apply(ev)
		return
	}
	start := ev.Op.Start
	if ev.IsLife {
		start = ev.Life.Start
	} else if ev.Op.IsPart() {
		return
	}
	if start <= 0 || start > t {
		p.made(ev)
		p.countLater(ev)
		return
	}
	began := *ev
	if ev.IsLife {
		p.countLater(ev)
		if ev.Life.Act == tape.ActNone || ev.Life.Act == tape.ActLeak || ev.Life.Stage == tape.StageMisuse {
			return
		}
		if c := p.comms[ev.Generation]; c != nil && c.act(ev.Life.Act, ev.Life.Seq) != nil {
			return
		}
		r := &began.Life
		r.Stage, r.Time, r.Code, r.Phase = tape.StageStart, start, lifecycle.CodeOK, tape.PhaseNone
		r.State = lifecycle.StateNone
	} else {
		known := func(o *Op) bool { return o.is(&ev.Op) }
		if c := p.comms[ev.Generation]; c != nil && slices.ContainsFunc(c.Ops, known) {
			return
		}
		r := &began.Op
		r.Stage, r.Time, r.Code, r.Phase, r.Wait = tape.StageStart, start, lifecycle.CodeOK, tape.PhaseNone, -1
	}
	p.Apply(&began)
}

// countLater takes over the counts of messages on a record after the moment of Until, if no operation began in between.
func (p *Process) countLater(ev *tape.Event) {
	c := p.comms[ev.Generation]
	switch {
	case c == nil:
	case !ev.IsLife:
		c.wentOn = true
	case ev.Life.Messages != nil && !c.wentOn:
		c.countAll(true, ev.Life.Messages)
	}
}

// made applies the first event of a communicator if it is after the moment of Until. If it is a collective with a
// number above 1, the communicator existed at that moment, and this was its next collective.
func (p *Process) made(ev *tape.Event) {
	g := ev.Generation
	if p.comms[g] != nil || p.later[g] {
		return
	}
	if !ev.IsLife && ev.Op.Start == 0 {
		return // it stands for all earlier ones too, of which nothing is known
	}
	if o := &ev.Op; !ev.IsLife && o.Seq > 1 && o.Signature.Call.IsCollective() {
		if c := p.comm(g, ev.Root, &ev.Comm, false); c != nil {
			c.State, c.Begun, c.Done = lifecycle.StateReady, o.Seq-1, o.Seq-1
		}
		return
	}
	if p.later == nil {
		p.later = make(map[uint32]bool)
	}
	if len(p.later) < maxComms {
		p.later[g] = true
	}
}

// LookBack applies what the in-flight table of a later moment says about the time until t: operations that were in
// flight then and still are, and communicators without operations.
func (p *Process) LookBack(slots []tape.Slot, t int64) {
	for i := range slots {
		s := slots[i]
		s.Counted = s.Counted && max(s.LastEnd, s.CallStart, s.OpStart) <= t // else it may count messages after t
		if idle := s.Launched == s.Completed; idle && s.Launched > 0 || s.OpStart > t {
			c := p.comms[s.Generation]
			if c != nil && s.Counted {
				c.countAll(true, s.Messages[:])
			}
			if c != nil && s.Marked { // the proof that its last operation is done may be later than t
				s.Completed, s.Unproven = s.Launched, true
				c.Slot = &s
			}
			continue
		}
		if s.WaitSince > t {
			s.Wait, s.WaitSince = -1, 0
		}
		if c := p.comms[s.Generation]; c != nil {
			s.State = c.State
		}
		if c := p.comm(s.Generation, s.Root, &s.CommInfo, false); c != nil {
			p.look(c, &s)
		}
	}
}
