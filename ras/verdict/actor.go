package verdict

import (
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

// actor is one rank with all the communicators that it is in.
type actor struct {
	note    *Note
	job     int // rank in the job; -1 if it isn't known
	slots   []*Slot
	habit   *Habit         // nil if its history tells nothing
	track   *track         // of progress.go; nil until it is needed
	calls   progress       // of made; nil until it is needed
	program string         // names the program that it runs; set by common
	in      []*participant // in the meetings that it is in, or was in when they failed
	// idleFor is the time since its last call, without the time in which its process was stopped; -1 if it isn't known.
	idleFor time.Duration
	leaves  []*leaf // where the walk ends at this actor
	// due has the actor's ranks, as far as other ranks tell, in communicators that it has not joined.
	due map[lifecycle.CommID]int
}

// compareNumbers finds the communicators whose rank numbers or rank order differ from the job's.
func (g *graph) compareNumbers() {
	seen := map[lifecycle.CommID]bool{}
	for _, a := range g.actors {
		for _, s := range a.slots {
			if seen[s.Comm] {
				continue
			}
			seen[s.Comm] = true
			last := -1
			for p := range g.members(s) {
				g.reordered = g.reordered || p.actor.job <= last
				last = p.actor.job
				if last >= 0 && last != p.slot.Rank {
					g.renumbered[s.Comm] = true
				}
			}
		}
	}
}

// addNote makes the actors of one process. launched has the rank numbers that the job's launcher gave.
func (g *graph) addNote(n *Note, launched map[int]bool) {
	g.notes = append(g.notes, n)
	byRoot := map[uint32]*actor{}
	var own []*actor
	for i := range n.Slots {
		s := &n.Slots[i]
		if !s.valid() {
			continue
		}
		a := byRoot[s.Root]
		if a == nil {
			a = &actor{note: n, job: -1, idleFor: -1}
			byRoot[s.Root] = a
			own = append(own, a)
		}
		a.slots = append(a.slots, s)
		if s.Job >= 0 {
			a.job = s.Job
		}
		if s.Op.Call != lifecycle.CallNone {
			a.active(s.Age)
		}
		if s.Left != nil {
			a.active(s.Left.Age - s.Left.Took)
		}
		if s.Rank >= 0 {
			if old := g.ranks[commRank{s.Comm, s.Rank}]; old == nil || old.slot.Left != nil {
				g.ranks[commRank{s.Comm, s.Rank}] = &participant{actor: a, slot: s}
			}
		}
	}
	if len(own) == 0 {
		own = append(own, &actor{note: n, job: -1, idleFor: -1})
		if n.Fate != Alive {
			g.hidden = append(g.hidden, own[0])
		}
	}
	// A program may number a communicator of all ranks differently from its launcher; the launcher's number applies.
	// But if the launcher gave no rank the actor's number, the actor may be another one of the process's ranks.
	if len(own) == 1 && n.Rank >= 0 && len(own[0].slots) > 0 &&
		(own[0].job < 0 || own[0].inWorldOf(n.JobSize) && launched[own[0].job]) {
		own[0].job = n.Rank
	}
	for i := range n.Habits {
		a := byRoot[n.Habits[i].Root]
		if a == nil && len(own) == 1 && len(own[0].slots) == 0 { // its communicators are gone
			a = own[0]
		}
		if a != nil {
			a.habit = &n.Habits[i]
		}
	}
	for _, a := range own {
		if n.Awake > 0 && a.idleFor > n.Awake {
			a.idleFor = max(n.Awake, a.idleFor-n.Paused)
		}
		if a.job >= 0 {
			g.byJob[a.job] = a
		}
	}
	g.actors = append(g.actors, own...)
}

// numberUnseen gives job ranks to processes of which only the launcher's number is known. The job has that many
// processes. If it has several ranks per process, a process gets the consecutive ranks that its number implies,
// provided that all other processes have theirs.
func (g *graph) numberUnseen(processes int) {
	each := max(1, g.size/max(processes, 1))
	first := func(a *actor) int { return a.note.Rank * each }
	inOrder := g.size == each*processes && !slices.ContainsFunc(g.actors, func(a *actor) bool {
		return len(a.slots) > 0 && (a.job < first(a) || a.job >= first(a)+each)
	})
	for _, a := range g.actors {
		if len(a.slots) > 0 || a.note.Rank < 0 || each > 1 && !inOrder {
			continue
		}
		a.job, g.byJob[first(a)] = first(a), a
		for job := first(a) + 1; job < first(a)+each; job++ {
			more := *a
			more.job, g.byJob[job] = job, &more
			g.actors = append(g.actors, &more)
			if a.gone() || a.note.Fate == Stopped {
				g.hidden = append(g.hidden, &more)
			}
		}
	}
}

// inWorldOf reports whether a rank has its number in the job from a communicator of that many ranks.
func (a *actor) inWorldOf(size int) bool {
	return slices.ContainsFunc(a.slots, func(s *Slot) bool {
		return s.Parent.IsZero() && s.Rank == a.job && s.Size == size
	})
}

// idleWithout is idleFor without the calls on some communicators; pauses of the process count as idle. It is -1 if
// there is no other call.
func (a *actor) idleWithout(some func(*Slot) bool) time.Duration {
	rest := actor{idleFor: -1}
	for _, s := range a.slots {
		if !some(s) && s.Op.Call != lifecycle.CallNone {
			rest.active(s.Age)
		}
	}
	return rest.idleFor
}

// active records that the actor made or ended a call that long ago.
func (a *actor) active(age time.Duration) {
	if a.idleFor < 0 || age < a.idleFor {
		a.idleFor = age
	}
}

// The failure of a communicator is past when the program has worked without it for recoveryTime (before that, other
// operations may not have failed yet), or pastTime after the program has ended the communicator.
const (
	recoveryTime = 2 * time.Second
	pastTime     = 30 * time.Second
)

// past tells whether the failure of a communicator is past for this rank.
func (a *actor) past(s *Slot) bool {
	left := s.Failure != nil && s.idle() && s.Left != nil && s.Left.Age > pastTime && a.note.Fate != Dead
	return left || a.recovered(s)
}

// recovered reports whether a rank has completed work since a communicator failed: in a communicator made since then,
// for example by a shrink, or in a child of the failed one, unless the process died afterwards.
func (a *actor) recovered(s *Slot) bool {
	if s.Failure == nil || !s.idle() || s.Failure.Age < recoveryTime {
		return false
	}
	worksOn := func(t *Slot) bool {
		return t.Parent == s.Comm && t.healthy() && t.Seq > 0 && t.Age < s.Failure.Age
	}
	return a.note.wentOn(s.Root, s.Failure.Age) || a.note.Fate != Dead && slices.ContainsFunc(a.slots, worksOn)
}

// wentOn reports whether one of the process's ranks has completed operations in a communicator that was made since a
// failure or death that long ago. Whatever happened to that communicator later, the rank is past that failure or death.
func (n *Note) wentOn(root uint32, ago time.Duration) bool {
	return ago >= recoveryTime && slices.ContainsFunc(n.Slots, func(s Slot) bool {
		return s.Root == root && s.madeSince(ago) && s.worked()
	})
}

// slotIn is the actor's slot in a communicator; nil if it has none.
func (a *actor) slotIn(comm lifecycle.CommID) *Slot {
	for _, s := range a.slots {
		if s.Comm == comm {
			return s
		}
	}
	return nil
}

// rankOf names an actor for the verdict, as seen from a communicator.
func rankOf(a *actor, comm lifecycle.CommID) Rank {
	r := Rank{Job: a.job, Comm: -1, Member: a.note.Member, Host: a.note.Host, PID: a.note.PID}
	s := a.slotIn(comm)
	if rank, is := a.due[comm]; is && s == nil {
		r.Comm = rank
		return r
	}
	if s == nil && a.job < 0 && len(a.slots) > 0 {
		s = a.slots[0]
	}
	if s != nil {
		r.Comm, r.comm = s.Rank, commText(s)
	}
	return r
}
