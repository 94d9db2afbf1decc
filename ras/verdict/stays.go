package verdict

import (
	"math"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
)

// infer finds waits on devices, whose collectives don't say which rank they wait for. All ranks complete it at about
// the same time, and the last to come doesn't wait in it. So what the others spend in collectives, beyond the most that
// one rank may have spent in operations of the communicator, is what they wait for that one. What a rank may have spent
// beyond the rank that spends least is the most that it waits for others; if that one isn't known, it is all.
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

// Times of devices of one communicator compare if they are of about the same time, and differ if they do by more than
// certainty standard deviations of what so many looks see.
const (
	sameTime  = 0.9
	certainty = 4
)

// inside and busy are the parts of the time that a rank's device was in collectives at least, and in operations at
// most.
func inside(s *model.Span) float64 { return part(s.Inside, s) }
func busy(s *model.Span) float64   { return part(s.Busy, s) }

func part(d int64, s *model.Span) float64 { return max(0, min(float64(d)/float64(max(s.Over, 1)), 1)) }

// variance is that of a part of the time, by so many looks. With two more of either kind it is none too small (Agresti
// and Coull, The American Statistician 52, 1998).
func variance(part float64, s *model.Span) float64 {
	looks := float64(max(s.Looks, 1))
	p := (part*looks + 2) / (looks + 4)
	return p * (1 - p) / looks
}

// stays are how the devices of a communicator's ranks spent their time. They are zero if that isn't known of all.
type stays struct {
	told                   bool // operations of the communicator say which rank they wait for
	slots                  []*Slot
	inside, variances, ops float64 // sums
	least, next            float64 // inside: of the rank that was there least, and of the next one
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

// lead adds for how long the others were in collectives without a rank. Where one of them comes as late, or nearly so,
// the others don't wait for either alone.
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

// hardlyWait tells whether the other ranks of a communicator have hardly waited for one in the newer half of the
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

// Recovered tells of a straggler that devices waited for whether they hardly do so any more. notes are the present
// ones.
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
