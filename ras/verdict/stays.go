package verdict

import (
	"math"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
)

// infer finds waits on devices, whose collectives don't say which rank they wait for. All ranks complete a collective
// at about the same time, and the last one to come doesn't wait in it. So the time that the others spend in
// collectives, beyond the most that one rank may have spent in operations of the communicator, is how long they wait
// for that rank. The most that a rank waits for others is the time that it may have spent in operations beyond the rank
// that spends least; if that rank isn't known, it is all of that time.
func (w *waitSums) infer() {
	known := map[lifecycle.CommID]*stays{}
	for _, a := range w.g.actors {
		for _, s := range a.slots {
			if s.Left != nil && s.Left.Age < model.StayWindow {
				w.blind[a] = true
			}
			if s.Stay.Over <= 0 {
				continue
			}
			if known[s.Comm] == nil {
				known[s.Comm] = w.g.staysIn(s)
				w.lead(known[s.Comm])
			}
			if t := known[s.Comm]; !t.told {
				w.of[a] += time.Duration(max(busy(&s.Stay.Span)-t.least, 0) * float64(s.Stay.Over))
			}
		}
	}
}

// Times of a communicator's devices can be compared if they cover at least sameTime of the same time. They differ if
// they do so by more than certainty standard deviations, given the number of looks.
const (
	sameTime  = 0.9
	certainty = 4
)

// inside is the least part of the time that a rank's device was in collectives; busy is the most that it was in
// operations.
func inside(s *model.Span) float64 { return part(s.Inside, s) }
func busy(s *model.Span) float64   { return part(s.Busy, s) }

func part(d int64, s *model.Span) float64 { return max(0, min(float64(d)/float64(max(s.Over, 1)), 1)) }

// variance is that of a part of the time, given the number of looks. Two more looks of either kind keep it from being
// too small (Agresti and Coull, The American Statistician 52, 1998).
func variance(part float64, s *model.Span) float64 {
	looks := float64(max(s.Looks, 1))
	p := (part*looks + 2) / (looks + 4)
	return p * (1 - p) / looks
}

// stays is how the devices of a communicator's ranks spent their time. It is zero if that isn't known of all ranks.
type stays struct {
	told                   bool // operations of the communicator say which rank they wait for
	slots                  []*Slot
	inside, variances, ops float64 // sums
	least, next            float64 // inside of the rank with the least, and of the next one
}

func (g *graph) staysIn(s *Slot) *stays {
	all := slices.Collect(g.members(s))
	if slices.ContainsFunc(all, func(p *participant) bool { return len(p.slot.Waited) > 0 }) {
		return &stays{told: true}
	}
	t := &stays{least: 1, next: 1}
	shortest, longest := s.Stay.Over, s.Stay.Over
	for _, p := range all {
		stay := &p.slot.Stay.Span
		if stay.Over <= 0 || p.slot.Size != s.Size || p.actor.note.Fate != Alive {
			return &stays{}
		}
		part := inside(stay)
		t.slots = append(t.slots, p.slot)
		t.inside, t.ops = t.inside+part, t.ops+float64(stay.Ops)
		t.least, t.next = min(t.least, part), max(t.least, min(t.next, part))
		t.variances += variance(part, stay)
		shortest, longest = min(shortest, stay.Over), max(longest, stay.Over)
	}
	if len(all) < max(s.Size, 2) || float64(shortest) < sameTime*float64(longest) {
		return &stays{}
	}
	return t
}

// lead adds, for each rank, for how long the others were in collectives without it. If another rank comes as late, or
// nearly so, the others don't wait for either one alone.
func (w *waitSums) lead(t *stays) {
	n := float64(len(t.slots) - 1)
	for _, s := range t.slots {
		stay := &s.Stay.Span
		own, most := inside(stay), busy(stay)
		others := (t.inside - own) / n
		mean, least := others-most, t.least
		if own == t.least {
			least = t.next
		}
		if mean <= 0 || least-most < mean/2 || hardlyWait(t.slots, s.Rank) {
			continue
		}
		deviation := math.Sqrt((t.variances-variance(own, stay))/(n*n) + variance(most, stay))
		key, over := commRank{s.Comm, s.Rank}, float64(stay.Over)
		w.held[key] = &holdUp{
			slot: s, time: time.Duration(mean * n * over), chance: time.Duration(certainty * deviation * over),
			window: time.Duration(over), ops: int((t.ops-float64(stay.Ops))/n) - stay.Ops, calls: max(stay.Done, 1),
			evidence: []Text{say("the GPUs of the others are in its collectives for %.0f %% of the time, and that of "+
				"the rank for %.0f %% at most", 100*others, 100*most)},
		}
		w.order = append(w.order, key)
	}
}

// hardlyWait reports whether the other ranks of a communicator have hardly waited for a rank in the newer half of the
// window, by the slots of all.
func hardlyWait(slots []*Slot, rank int) bool {
	sum, n, most := 0.0, 0, 0.0
	for _, s := range slots {
		if s.Rank == rank {
			most = busy(&s.Stay.Newer)
		} else {
			sum += inside(&s.Stay.Newer)
			n++
		}
	}
	return sum-most*float64(n) < stragglerShare/2*float64(n)
}

// Recovered reports whether devices hardly wait any more for a straggler that they had waited for. notes are the
// present ones.
func (v *Verdict) Recovered(notes []Note) bool {
	if v.Reason != Straggler || len(v.Culprits) == 0 {
		return false
	}
	var slots []*Slot
	for i := range notes {
		for k := range notes[i].Slots {
			if s := &notes[i].Slots[k]; s.Comm == v.Comm && s.Stay.Newer.Over > 0 {
				slots = append(slots, s)
			}
		}
	}
	return hardlyWait(slots, v.Culprits[0].Comm)
}
