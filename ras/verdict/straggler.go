package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/telemetry/model"
)

// A rank is a straggler if the others wait for it during a fifth of a window of at least ten seconds (in a job that has
// just begun, one long wait is most of the time), in at least eight operations, three times as long as for the median
// rank, and if it waits for others at most half as long (else it is late because of another rank, as stages of a
// pipeline always are). Ranks that run the same program must not be waited for as long: then the program is made so, as
// a pipeline with a longer stage. Of a pipeline's rank that has none like it, that can't be known.
const (
	stragglerShare  = 0.2
	stragglerOps    = 8
	stragglerWindow = 10 * time.Second
	stragglerTimes  = 3
)

// heldUp tells whether a rank's operations waited for another rank long and often enough for a straggler.
func heldUp(waited time.Duration, ops int, window time.Duration) bool {
	return window >= stragglerWindow && ops >= stragglerOps && waited.Seconds() >= stragglerShare*window.Seconds()
}

// stragglers are the verdicts on ranks that others waited for, each on the communicator where the wait was longest.
func (g *graph) stragglers() []Verdict {
	type sum struct {
		by     []*participant
		time   time.Duration
		window time.Duration // the longest: of a rank that hardly waits it is short
		ops    int
	}
	held := map[commRank]*sum{}
	waits := map[*actor]time.Duration{} // of each rank for others
	most := map[*actor]time.Duration{}  // of others for each rank
	var order []commRank
	for _, a := range g.actors {
		for _, s := range a.slots {
			for _, w := range s.Waited {
				key := commRank{s.Comm, int(w.Rank)}
				if held[key] == nil {
					held[key] = &sum{}
					order = append(order, key)
				}
				h := held[key]
				h.by, h.ops = append(h.by, &participant{actor: a, slot: s}), max(h.ops, w.Ops)
				h.time += time.Duration(w.Time)
				h.window = max(h.window, s.Window)
				waits[a] += time.Duration(w.Time)
			}
		}
	}
	mean := func(key commRank) time.Duration {
		return held[key].time / time.Duration(max(held[key].by[0].slot.Size-1, 1))
	}
	slices.SortStableFunc(order, func(a, b commRank) int { return cmp.Compare(mean(b), mean(a)) })
	for _, key := range order {
		if p := g.ranks[key]; p != nil {
			most[p.actor] = max(most[p.actor], mean(key))
		}
	}
	usual := make([]time.Duration, 0, len(g.actors))
	for _, a := range g.actors {
		usual = append(usual, most[a]-waits[a]) // what it waited itself is another rank's
	}
	slices.Sort(usual)
	told := map[*actor]bool{}
	var verdicts []Verdict
	for _, key := range order {
		h, mean := held[key], mean(key)
		slot := h.by[0].slot
		p := g.ranks[key]
		if p == nil || told[p.actor] || slot.Size < 2 || !heldUp(mean, h.ops, h.window) || waits[p.actor] > mean/2 ||
			mean < stragglerTimes*usual[(len(usual)-1)/2] {
			continue
		}
		others, same := 0, 0
		for _, o := range g.alike(p.actor) {
			if o.note != p.actor.note {
				others++
				if mean < stragglerTimes*(most[o]-waits[o]) {
					same++
				}
			}
		}
		messages := slot.Groups > 0 || len(slot.Messages) > 0
		if others == 0 && messages || others > 0 && 2*same >= others {
			continue
		}
		told[p.actor] = true
		r := rankOf(p.actor, key.comm)
		v := Verdict{
			Reason: Straggler, Confidence: Likely, Culprits: []Rank{r}, Comm: key.comm, Name: slot.Name,
			Age: Age(h.window), Text: say("%s holds up %s: the others wait for it %s of the time, %s an operation",
				culpritsText([]Rank{r}), commText(slot),
				fmt.Sprintf("%.0f %%", 100*mean.Seconds()/h.window.Seconds()),
				Age(mean/time.Duration(h.ops)).String()),
		}
		v.setID()
		for _, by := range h.by {
			v.Victims = append(v.Victims,
				Wait{Rank: rankOf(by.actor, key.comm), Comm: key.comm, Name: by.slot.Name, Call: "operations"})
		}
		slices.SortFunc(v.Victims, longest)
		if p.actor.note.Where != "" {
			v.Evidence = []Text{say("%s is between its calls: %s", r, p.actor.note.Where)}
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// AnyHeldUp tells whether operations of the process waited for one rank long and often enough for a straggler.
func AnyHeldUp(p *model.Process, now int64) bool {
	for c := range p.Comms() {
		waits, over := c.Waits(now)
		for _, w := range waits {
			if heldUp(time.Duration(w.Time), w.Ops, time.Duration(over)) {
				return true
			}
		}
	}
	return false
}
