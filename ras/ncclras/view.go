package ncclras

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// View is what a node has learnt from NCCL's RAS about the processes of its job, and turns it into notes for
// verdict.Diagnose. It has no clock, lock or I/O, and is for one goroutine. The zero value knows nothing.
type View struct {
	comms []Comm
	procs map[Process]quietness
	at    time.Time // of the last status; zero: there was none
}

// quietness is since when a process has not answered NCCL; its since is zero if the process answers.
type quietness struct {
	since time.Time
	dead  bool // NCCL considers it dead, after a minute
	again bool // a status found it again
}

// doubtTime is how long a process must have been silent to count as out of reach, as an answer may be late.
const doubtTime = 5 * time.Second

// Learn takes in a status of the time at. It ignores a status with Damage, which may be wrong, and uses what there is
// of a status with Cut.
func (v *View) Learn(s *Status, at time.Time) {
	if len(s.Damage) > 0 {
		return
	}
	is := map[Process]Condition{}
	for _, c := range s.Comms {
		for _, r := range c.Ranks {
			if r.PID > 0 {
				is[r.Process] = max(is[r.Process], r.Condition)
			}
		}
	}
	before := v.procs
	v.procs = map[Process]quietness{}
	if s.Cut != nil { // processes that it doesn't mention may be in the rest
		maps.Copy(v.procs, before)
	}
	for p, condition := range is {
		q := before[p]
		q.again = q.again || !q.since.IsZero()
		v.procs[p] = q.become(condition, at)
	}
	v.comms, v.at = s.Comms, at
}

// become is the quietness of a process that was found in the condition at a time.
func (q quietness) become(is Condition, at time.Time) quietness {
	if is.answers() {
		return quietness{}
	}
	if q.since.IsZero() {
		q.since = at
	}
	q.dead = q.dead || is == Dead
	return q
}

// conditions are those of processes by the events about them.
var conditions = map[string]Condition{
	PeerNew: Running, PeerConnected: Running, PeerRecovered: Running,
	PeerUnresponsive: Unresponsive, PeerDead: Dead, PeerTimeoutDead: Dead,
}

// Hear takes in an event of the time at.
func (v *View) Hear(e Event, at time.Time) {
	if e.Process.PID == 0 {
		return
	}
	if v.procs == nil {
		v.procs = map[Process]quietness{}
	}
	q := v.procs[e.Process]
	if is, known := conditions[e.Name]; known {
		q = q.become(is, at)
	}
	v.procs[e.Process] = q
}

// Open tells whether another status may add something: a process doesn't answer, and there was no status since then, or
// NCCL doesn't consider it dead yet.
func (v *View) Open() bool {
	for _, q := range v.procs {
		if !q.since.IsZero() && (!q.dead || v.at.Before(q.since)) {
			return true
		}
	}
	return false
}

// Notes returns notes on processes without a tape. own are the notes of the job's processes with a tape; host returns
// their name for a host, empty if unknown. There are no notes if NCCL knows none of own's processes, as another job may
// answer at that port. A process with a rank that own has is one of own's under another host name, and is left out.
//
// The mapping:
//
//	NCCL                                      a note
//	no answer for 5 s, and twice in a row     unreachable: it may be stopped, cut off or dead
//	it is considered dead                     unreachable, and since when: whether it ended isn't known
//	either, but no rank of own's waits too    alive and stale: a process that ended normally doesn't answer either
//	  long in a communicator with it
//	it answers                                alive and stale: what it is doing isn't known, so it is never blamed
//	the ranks of a communicator               slots, if it is clear which of own's communicators that is
//	operations launched                       Begun and Done, if own's ranks count the same as their tapes: as on an
//	                                          NCCL process's tape, a collective ends when it is launched
//	finalize, destroy, abort                  Left
//
// A process that answers has slots only if it has launched as many operations as every other rank, so that none waits
// for it. Of another process, or one whose counts can't be relied on, the note says only that it exists: it may itself
// be waiting for something that NCCL doesn't report.
func (v *View) Notes(own []verdict.Note, host func(netip.Addr) string, now time.Time) []verdict.Note {
	m := match{view: v, own: map[Process]*verdict.Note{}, taken: map[seat]bool{}}
	names := map[netip.Addr]string{}
	type place struct {
		host string
		pid  int
	}
	at := map[place]*verdict.Note{}
	for i := range own {
		at[place{own[i].MachineName(), own[i].PID}] = &own[i]
		m.size = max(m.size, own[i].JobSize)
		for _, s := range own[i].Slots {
			m.taken[seat{s.Comm, s.Rank}] = true
		}
	}
	for p := range v.procs {
		name, known := names[p.Host]
		if !known {
			name = cmp.Or(host(p.Host), p.Host.String())
			names[p.Host] = name
		}
		if n := at[place{name, p.PID}]; n != nil {
			m.own[p] = n
		}
	}
	if len(m.own) == 0 {
		return nil
	}
	known := m.known()
	var notes []verdict.Note
	for p, q := range v.procs {
		if m.own[p] != nil {
			continue
		}
		n := verdict.Note{
			Member: fmt.Sprintf("%s-%d", names[p.Host], p.PID), Host: names[p.Host], PID: p.PID,
			Rank: -1, JobSize: m.size, Stale: true,
		}
		silent := now.Sub(q.since)
		switch {
		case q.since.IsZero(), !m.awaited(p, known):
		case q.dead:
			n.Fate, n.FateAge, n.Cause = verdict.Unreachable, silent,
				"NCCL considers it dead: it gave no answer for a minute"
		case silent >= doubtTime && (q.again || v.at.Before(q.since)):
			n.Fate, n.FateAge, n.Cause = verdict.Unreachable, silent, "it doesn't answer NCCL"
		}
		if m.fill(&n, p, known, now) {
			notes = append(notes, n)
		}
	}
	slices.SortFunc(notes, func(a, b verdict.Note) int { return cmp.Compare(a.Member, b.Member) })
	return notes
}

// match finds NCCL's communicators among those of the tapes.
type match struct {
	view *View
	own  map[Process]*verdict.Note
	size int // of the job

	taken map[seat]bool // by own
}

// seat is a rank of a communicator.
type seat struct {
	comm lifecycle.CommID
	rank int
}

// known returns own's slots for each of NCCL's communicators that can be identified: exactly one of own's has the same
// processes at the same ranks, and no other of NCCL's has them too.
func (m *match) known() map[int][]*verdict.Slot {
	place := func(p Process, rank, size int) string { return fmt.Sprintf("%v: %d of %d", p, rank, size) }
	shape := func(places []string) string { return strings.Join(slices.Sorted(slices.Values(places)), ", ") }
	slots, places := map[lifecycle.CommID][]*verdict.Slot{}, map[lifecycle.CommID][]string{}
	for p, n := range m.own {
		for i := range n.Slots {
			if s := &n.Slots[i]; s.Left == nil {
				slots[s.Comm] = append(slots[s.Comm], s)
				places[s.Comm] = append(places[s.Comm], place(p, s.Rank, s.Size))
			}
		}
	}
	own, theirs := map[string][]lifecycle.CommID{}, map[string][]int{} // by shape
	for id, at := range places {
		own[shape(at)] = append(own[shape(at)], id)
	}
	for i, c := range m.view.comms {
		var at []string // of its ranks in own's processes
		for _, r := range c.Ranks {
			if m.own[r.Process] != nil {
				at = append(at, place(r.Process, r.Rank, c.Size))
			}
		}
		theirs[shape(at)] = append(theirs[shape(at)], i)
	}
	found := map[int][]*verdict.Slot{}
	for of, comms := range theirs {
		if ids := own[of]; len(comms) == 1 && len(ids) == 1 {
			found[comms[0]] = slots[ids[0]]
		}
	}
	return found
}

// awaited tells whether a rank of own's is stalled in a communicator with the process. If the process's communicators
// can't be identified, any of own's may be one of them.
func (m *match) awaited(p Process, known map[int][]*verdict.Slot) bool {
	stalled := func(a verdict.OpenAct) bool { return a.Stalled }
	waits := func(s *verdict.Slot) bool {
		return s.Left == nil && (s.Stalled || slices.ContainsFunc(s.Acts, stalled))
	}
	plain := false
	for i, slots := range known {
		if slices.ContainsFunc(m.view.comms[i].Ranks, func(r Rank) bool { return r.Process == p }) {
			if plain = true; slices.ContainsFunc(slots, waits) {
				return true
			}
		}
	}
	for _, n := range m.own {
		for i := range n.Slots {
			if !plain && waits(&n.Slots[i]) {
				return true
			}
		}
	}
	return false
}

// fill adds the slots of the process to its note. It returns false for a process with a rank that own has.
func (m *match) fill(n *verdict.Note, p Process, known map[int][]*verdict.Slot, now time.Time) bool {
	age := now.Sub(m.view.at)
	behind := false
	for i, slots := range known {
		c := &m.view.comms[i]
		for _, r := range c.Ranks {
			if r.Process != p || r.Condition == NoComm {
				continue
			}
			if m.taken[seat{slots[0].Comm, r.Rank}] {
				return false
			}
			s := verdict.Slot{
				Comm: slots[0].Comm, Parent: slots[0].Parent, Name: slots[0].Name, Rank: r.Rank, Size: c.Size,
				Root: uint32(r.GPU), Job: -1, State: lifecycle.StateReady, Wait: -1, Age: age,
			}
			if m.whole(slots) {
				s.Job, n.Rank = r.Rank, r.Rank
			}
			if m.counts(c, slots) {
				s.Begun = launched(r.Launched)
				s.Done, s.Seq = s.Begun, s.Begun
			}
			behind = behind || s.Begun == 0 || s.Begun < most(c)
			switch r.Condition {
			case Finalizing:
				s.Left = &verdict.Left{Act: tape.ActDestroy, Age: age}
			case Aborting:
				s.Left = &verdict.Left{Act: tape.ActAbort, Age: age}
			case Initializing:
				s.State = lifecycle.StateInitializing
			default:
			}
			n.Slots = append(n.Slots, s)
		}
	}
	if behind && n.Fate == verdict.Alive {
		n.Slots = nil
	}
	slices.SortFunc(n.Slots, func(a, b verdict.Slot) int {
		return cmp.Or(bytes.Compare(a.Comm[:], b.Comm[:]), cmp.Compare(a.Rank, b.Rank))
	})
	return true
}

// most is the highest number of operations that a rank of a communicator has launched.
func most(c *Comm) (n uint64) {
	for _, r := range c.Ranks {
		n = max(n, launched(r.Launched))
	}
	return n
}

// whole tells whether a communicator has all ranks of the job, in order.
func (m *match) whole(slots []*verdict.Slot) bool {
	return !slices.ContainsFunc(slots, func(s *verdict.Slot) bool {
		return s.Size != m.size || s.Job != s.Rank
	})
}

// counts tells whether NCCL's counts for a communicator agree with the tapes: some versions leave them at 0 on a node
// (NVIDIA/nccl#2021), and they lack some operations.
func (m *match) counts(c *Comm, slots []*verdict.Slot) bool {
	for _, s := range slots {
		i := slices.IndexFunc(c.Ranks, func(r Rank) bool { return r.Rank == s.Rank })
		if n := launched(c.Ranks[i].Launched); n == 0 || n != s.Begun {
			return false
		}
	}
	return true
}

func launched(by map[string]uint64) (n uint64) {
	for _, k := range by {
		n += k
	}
	return n
}
