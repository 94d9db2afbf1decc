package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// What makes a straggler: the others wait for it for a fifth of their time, in eight operations or more and over ten
// seconds or more (one long wait is most of the time of a job that has just begun), and it waits for others, whichever,
// for less than half as long: who is late because somebody else is holds nobody up.
const (
	stragglerShare  = 0.2
	stragglerOps    = 8
	stragglerWindow = 10 * time.Second
)

// stragglers are the ranks that hold up a job that moves, by how long others waited for them: each where they did so
// for longest.
func (g *graph) stragglers() []Verdict {
	type sum struct {
		by   []*place
		time time.Duration
		ops  int
	}
	held := map[seat]*sum{}
	waits := map[*actor]time.Duration{} // of each rank itself
	var order []seat
	for _, a := range g.actors {
		for _, s := range a.slots {
			for _, w := range s.Waited {
				key := seat{s.Comm, w.Rank}
				if held[key] == nil {
					held[key] = &sum{}
					order = append(order, key)
				}
				h := held[key]
				h.by, h.time, h.ops = append(h.by, &place{a, s}), h.time+w.Time, max(h.ops, w.Ops)
				waits[a] += w.Time
			}
		}
	}
	mean := func(key seat) time.Duration {
		return held[key].time / time.Duration(max(held[key].by[0].slot.Size-1, 1))
	}
	slices.SortStableFunc(order, func(a, b seat) int { return cmp.Compare(mean(b), mean(a)) })
	told := map[*actor]bool{}
	var verdicts []Verdict
	for _, key := range order {
		h, mean := held[key], mean(key)
		slot := h.by[0].slot
		p := g.seats[key]
		if p == nil || told[p.actor] || slot.Window < stragglerWindow || slot.Size < 2 || h.ops < stragglerOps {
			continue
		}
		share := mean.Seconds() / slot.Window.Seconds()
		if share < stragglerShare || waits[p.actor] > mean/2 {
			continue
		}
		told[p.actor] = true
		r := rankOf(p.actor, key.comm)
		v := Verdict{
			Reason: Straggler, Confidence: Likely, Culprits: []Rank{r}, Comm: key.comm, Name: slot.Name, Age: Age(slot.Window),
			Text: fmt.Sprintf("%s holds up %s: the others wait for it %.0f %% of the time, %s an operation",
				r, commText(slot), 100*share, Age(mean/time.Duration(h.ops))),
		}
		for _, by := range h.by {
			v.Victims = append(v.Victims, Wait{Rank: rankOf(by.actor, key.comm), Comm: key.comm, Name: by.slot.Name, Call: "operations"})
		}
		slices.SortFunc(v.Victims, longest)
		if p.actor.note.Where != "" {
			v.Evidence = []string{fmt.Sprintf("%s is outside of Carillon: %s", r, p.actor.note.Where)}
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}
