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
// pipeline always are). Most other ranks that run the same program must not be waited for as long: else the
// program is made that way, like a pipeline with a longer stage. If no other rank of a pipeline runs the same program,
// that can't be known.
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

// holdUp is how long others waited for a rank of a communicator.
type holdUp struct {
	slot     *Slot
	by       []*participant // the ranks that reported it; none if it is inferred
	time     time.Duration  // the sum of their waits
	whole    time.Duration  // the same, with the whole of the waits that count in part
	long     int            // operations with such waits
	longTime time.Duration  // the sum of these waits
	chance   time.Duration  // the mean may be longer by this much by chance
	window   time.Duration  // the longest one: it is short for a rank that hardly waits
	ops      int            // in which they waited
	calls    int            // in which they may have
	evidence []Text
}

// mean is how long each of the others waited.
func (h *holdUp) mean() time.Duration { return h.each(h.time) }

// each is the average over the other ranks of a time that is summed over them.
func (h *holdUp) each(all time.Duration) time.Duration {
	return all / time.Duration(max(h.slot.Size-1, 1))
}

// text says how much of the time the others wait: most of it in a few operations, or in each.
func (h *holdUp) text() string {
	whole := max(h.whole, h.time)
	share := fmt.Sprintf("%.0f %% of the time", 100*h.each(whole).Seconds()/h.window.Seconds())
	if h.inFew() {
		return fmt.Sprintf("%s, most of that in %d of %d operations, %s each", share, h.long, h.calls, Age(h.delay()))
	}
	return fmt.Sprintf("%s, %s an operation", share, Age(h.delay()))
}

// inFew tells whether most of the waits are in a few long ones.
func (h *holdUp) inFew() bool { return h.long > 0 && 2*h.longTime > max(h.whole, h.time) }

// delay is how long each of the others usually waits.
func (h *holdUp) delay() time.Duration {
	if h.inFew() {
		return h.each(h.longTime) / time.Duration(h.long)
	}
	return h.each(max(h.whole, h.time)) / time.Duration(h.calls)
}

// waitSums are how long ranks waited for each other.
type waitSums struct {
	g     *graph
	held  map[commRank]*holdUp
	order []commRank
	of    map[*actor]time.Duration // how long each rank waited for others, at most
	blind map[*actor]bool          // ranks that may have waited unseen
}

func newWaitSums(g *graph) *waitSums {
	w := &waitSums{g: g, held: map[commRank]*holdUp{}, of: map[*actor]time.Duration{}, blind: map[*actor]bool{}}
	w.told()
	w.infer()
	slices.SortStableFunc(w.order, func(a, b commRank) int { return cmp.Compare(w.held[b].mean(), w.held[a].mean()) })
	return w
}

// told sums up the waits for a rank that operations reported.
func (w *waitSums) told() {
	for _, a := range w.g.actors {
		for _, s := range a.slots {
			for _, wait := range s.Waited {
				key := commRank{s.Comm, int(wait.Rank)}
				if w.held[key] == nil {
					w.held[key] = &holdUp{slot: s}
					w.order = append(w.order, key)
				}
				h := w.held[key]
				h.by, h.ops = append(h.by, &participant{actor: a, slot: s}), max(h.ops, wait.Ops)
				h.calls = h.ops
				h.time += time.Duration(wait.Time)
				h.whole += time.Duration(wait.Whole())
				h.long, h.longTime = max(h.long, wait.Long), h.longTime+time.Duration(wait.LongTime)
				h.window = max(h.window, s.Window)
				w.of[a] += time.Duration(wait.Time)
			}
		}
	}
}

// heldBy are the ranks that wait for a rank of a communicator.
func (w *waitSums) heldBy(key commRank) []*participant {
	h := w.held[key]
	if h.by != nil {
		return h.by
	}
	return slices.DeleteFunc(slices.Collect(w.g.members(h.slot)), func(p *participant) bool {
		return p.slot.Rank == key.rank
	})
}

// lateAgain are the verdicts on stragglers if the ranks wait for nothing but these, and not twice as long as usual;
// else none. Where a straggler is slower than the threshold, each of its delays is a stall.
func (g *graph) lateAgain(all []Verdict) []Verdict {
	late := func(v Verdict) bool { return v.Reason == NotEntered && len(v.Culprits) > 0 }
	if len(all) == 0 || slices.ContainsFunc(all, func(v Verdict) bool { return !late(v) }) {
		return nil
	}
	verdicts, delays := g.stragglers()
	for i := range all {
		for _, r := range all[i].Culprits {
			k := slices.IndexFunc(verdicts, func(v Verdict) bool { return v.Culprits[0].Same(r) })
			if k < 0 || time.Duration(waited(&all[i])) > 2*delays[k] {
				return nil
			}
		}
	}
	return verdicts
}

// stragglers are the verdicts on ranks that others waited for, each on the communicator where the wait was longest, and
// how long each wait usually is.
func (g *graph) stragglers() (verdicts []Verdict, delays []time.Duration) {
	w := newWaitSums(g)
	most := map[*actor]time.Duration{} // how long the others waited for each rank
	for _, key := range w.order {
		if p := g.ranks[key]; p != nil {
			most[p.actor] = max(most[p.actor], w.held[key].mean())
		}
	}
	usual := make([]time.Duration, 0, len(g.actors))
	for _, a := range g.actors {
		usual = append(usual, most[a]-w.of[a]) // its own waits are due to other ranks
	}
	slices.Sort(usual)
	told := map[*actor]bool{}
	for _, key := range w.order {
		h, slot, mean := w.held[key], w.held[key].slot, w.held[key].mean()
		p := g.ranks[key]
		if p == nil || told[p.actor] || slot.Size < 2 || !heldUp(mean-h.chance, h.ops, h.window) ||
			w.of[p.actor] > mean/2 || mean < stragglerTimes*usual[(len(usual)-1)/2] || h.by == nil && w.blind[p.actor] {
			continue
		}
		others, same := 0, 0
		for _, o := range g.alike(p.actor) {
			if o.note != p.actor.note {
				others++
				if mean < stragglerTimes*(most[o]-w.of[o]) {
					same++
				}
			}
		}
		messages := slot.hasMessages() || h.by == nil && slices.ContainsFunc(p.actor.slots, (*Slot).hasMessages)
		if others == 0 && messages || others > 0 && 2*same >= others {
			continue
		}
		told[p.actor] = true
		r := rankOf(p.actor, key.comm)
		v := Verdict{
			Reason: Straggler, Confidence: Likely, Culprits: []Rank{r}, Comm: key.comm, Name: slot.Name,
			Age: Age(h.window),
			Text: say("%s holds up %s: the others wait for it %s", culpritsText([]Rank{r}), commText(slot),
				h.text()),
			Evidence: h.evidence,
		}
		v.setID()
		for _, by := range w.heldBy(key) {
			v.Victims = append(v.Victims,
				Wait{Rank: rankOf(by.actor, key.comm), Comm: key.comm, Name: by.slot.Name, Call: "operations"})
		}
		slices.SortFunc(v.Victims, longest)
		if p.actor.note.Where != "" {
			v.Evidence = append(v.Evidence, say("%s is between its calls: %s", r, p.actor.note.Where))
		}
		verdicts, delays = append(verdicts, v), append(delays, h.delay())
	}
	return verdicts, delays
}

// hasMessages tells whether the rank has sent or received any.
func (s *Slot) hasMessages() bool { return s.Groups > 0 || len(s.Messages) > 0 }

// AnyHeldUp tells whether operations of the process waited for one rank long and often enough for a straggler, or may
// have.
func AnyHeldUp(p *model.Process, now int64) bool {
	for c := range p.Comms() {
		waits, over := c.Waits(now)
		for _, w := range waits {
			if heldUp(time.Duration(w.Time), w.Ops, time.Duration(over)) {
				return true
			}
		}
		if s := &c.Stay; heldUp(time.Duration(s.Inside), int(s.Ops), time.Duration(s.Over)) {
			return true
		}
	}
	return false
}
