package postmortem

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// actor is who waits or is waited for: a process; in a job within one process, a rank of a communicator; or a rank that left no tape.
type actor struct {
	proc   *process
	number uint32 // of the member, of a process with many ranks
	comm   lifecycle.CommID
	rank   int32 // of comm, of one without a tape
}

func actorOf(m *member) actor {
	if m.proc.many {
		return actor{proc: m.proc, number: m.root()}
	}
	return actor{proc: m.proc}
}

// root is the number of the communicator from which the member's rank made its communicator in the end: it tells the ranks of one process apart.
func (m *member) root() uint32 {
	if m.slot != nil && m.slot.Root != 0 {
		return m.slot.Root
	}
	return m.number
}

// wait is one reason why an actor can't go on.
type wait struct {
	d    *doing
	on   actor
	to   *member // on's part in d's communicator; nil if it left no tape
	why  string  // "which is not in it"
	slow bool    // it is in the call too
}

// maxWaits bounds for how many ranks one call is said to wait.
const maxWaits = 64

// waits tells for whom everybody waits who is in a call. Who is dead waits for nobody.
func (j *job) waits(dead map[*process]bool) map[actor][]wait {
	all := make(map[actor][]wait)
	for _, c := range j.comms {
		for _, m := range c.members {
			d := j.calls[m]
			if d == nil || dead[m.proc] || d.young() {
				continue
			}
			a := actorOf(m)
			for _, w := range j.blockers(c, d, dead) {
				if w.on != a {
					all[a] = append(all[a], w)
				}
			}
		}
	}
	return all
}

// patience is how long a living process may be in a call before that is worth a word. Less is the work that it does; and processes that
// run are not all read at the same moment.
const patience = time.Second

// young tells whether a living process has been in the call for a moment only.
func (d *doing) young() bool {
	return d.m.proc.live > 0 && time.Duration(d.m.proc.live-d.start) < patience
}

// blockers are those without whom a call can't end.
func (j *job) blockers(c *comm, d *doing, dead map[*process]bool) (list []wait) {
	add := func(w wait) {
		w.d = d
		if w.to != nil {
			w.on = actorOf(w.to)
		}
		if len(list) < maxWaits {
			list = append(list, w)
		}
	}
	switch {
	case d.act == tape.ActInit || d.act == tape.ActSplit || d.act == tape.ActGrow:
		for _, m := range c.ranks() {
			if a := m.acts[actKey{d.act, d.seq}]; m != d.m && (a == nil || a.refused) {
				add(wait{to: m, why: "which is not in it" + j.instead(m)})
			} else if m != d.m && dead[m.proc] && a.end == 0 {
				add(wait{to: m, why: "which died in it"})
			}
		}
		absent, _ := c.absent()
		for _, rank := range absent {
			add(wait{on: actor{comm: c.info.ID, rank: int32(rank)}, why: "which left no tape"})
		}
	case d.act == tape.ActNone && semconv.Collective(d.call):
		for _, m := range c.ranks() {
			if m == d.m || m.ended >= d.seq {
				continue
			}
			switch other := j.calls[m]; {
			case dead[m.proc] && m.begun >= d.seq:
				add(wait{to: m, why: "which died in it"})
			case m.begun < d.seq:
				add(wait{to: m, why: "which is not in it" + j.instead(m)})
			case other == nil || other.seq != d.seq:
				add(wait{to: m, why: "which gave it up"})
			}
		}
		if len(list) == 0 && d.wait < 0 {
			absent, _ := c.absent()
			for _, rank := range absent {
				add(wait{on: actor{comm: c.info.ID, rank: int32(rank)}, why: "which left no tape"})
			}
		}
	}
	if len(list) > 0 {
		return list
	}
	peer := d.wait
	if peer < 0 && d.act == tape.ActNone && semconv.PointToPoint(d.call) {
		peer = d.sig.Peer
	}
	if peer < 0 || int(peer) >= c.info.Size || int(peer) == d.m.info.Rank {
		return nil
	}
	m := c.byRank[peer]
	if m == nil {
		add(wait{on: actor{comm: c.info.ID, rank: peer}, why: "which left no tape"})
		return list
	}
	w := wait{to: m}
	switch other := j.calls[m]; {
	case dead[m.proc]:
		w.why = "which died"
	case other != nil && semconv.Collective(d.call) && other.act == d.act && other.seq == d.seq && other.call != d.call:
		return nil // they made different calls, which is a finding of its own
	case other != nil && other.act == d.act && (other.call == d.call && other.seq == d.seq || semconv.PointToPoint(other.call)):
		w.why, w.slow = "which is in it too", semconv.Collective(d.call)
		if semconv.PointToPoint(other.call) {
			w.why = "which is in " + other.title()
		}
	default:
		w.why = "which is not in it" + j.instead(m)
	}
	add(w)
	return list
}

// ranks are the members that have a rank, in its order.
func (c *comm) ranks() []*member {
	list := make([]*member, 0, len(c.byRank))
	for _, m := range c.byRank {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *member) int { return cmp.Compare(a.info.Rank, b.info.Rank) })
	return list
}

// instead says what a rank does that is not in a call: what it is in on another communicator, or what it did last on this one.
func (j *job) instead(m *member) string {
	if d := j.calls[m]; d != nil {
		return fmt.Sprintf(" but in %s since %s", d.title(), clockTime(m.proc.at(d.start)))
	}
	for _, other := range m.proc.members {
		if d := j.calls[other]; d != nil && actorOf(other) == actorOf(m) {
			return fmt.Sprintf(" but in %s since %s", d.title(), clockTime(m.proc.at(d.start)))
		}
	}
	if m.lastEnd > 0 {
		return fmt.Sprintf(" (its last operation there ended at %s)", clockTime(m.proc.at(m.lastEnd)))
	}
	return ""
}

// path is how one actor comes to wait for a root: its first step, and how many there are.
type path struct {
	step wait
	from actor
	long int
}

// backwards is who waits for each actor directly, in their order.
func backwards(waits map[actor][]wait) map[actor][]path {
	back := make(map[actor][]path)
	for a, list := range waits {
		for _, w := range list {
			back[w.on] = append(back[w.on], path{step: w, from: a})
		}
	}
	for _, before := range back {
		slices.SortFunc(before, func(a, b path) int { return order(a.from, b.from) })
	}
	return back
}

// tree finds, by a search from the root along back, who waits for it and how.
func tree(root actor, back map[actor][]path) map[actor]path {
	found := make(map[actor]path)
	queue := []actor{root}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, p := range back[at] {
			if _, seen := found[p.from]; seen || p.from == root {
				continue
			}
			p.long = found[at].long + 1
			found[p.from] = p
			queue = append(queue, p.from)
		}
	}
	return found
}

// order puts actors in the order of the report.
func order(a, b actor) int {
	if (a.proc == nil) != (b.proc == nil) {
		if a.proc == nil {
			return 1
		}
		return -1
	}
	if a.proc == nil {
		return cmp.Or(slices.Compare(a.comm[:], b.comm[:]), cmp.Compare(a.rank, b.rank))
	}
	return cmp.Or(cmp.Compare(a.proc.index, b.proc.index), cmp.Compare(a.number, b.number))
}

// chain tells the longest way to the root, a step each; of several, that of whom waits longest.
func (j *job) chain(found map[actor]path) (steps []string) {
	var start actor
	longest := 0
	since := func(a actor) time.Time { return found[a].step.d.m.proc.at(found[a].step.d.start) }
	for a, p := range found {
		if p.long > longest || p.long == longest && cmp.Or(since(a).Compare(since(start)), order(a, start)) < 0 {
			start, longest = a, p.long
		}
	}
	for at := start; longest > 0; longest-- {
		p := found[at]
		steps = append(steps, j.step(p.step))
		at = p.step.on
	}
	return steps
}

func (j *job) step(w wait) string {
	return fmt.Sprintf("%s is in %s since %s and waits for %s, %s",
		w.d.m.who(), w.d.title(), clockTime(w.d.m.proc.at(w.d.start)), j.whom(w), w.why)
}

// whom names the one that is waited for.
func (j *job) whom(w wait) string {
	if w.to != nil {
		return w.to.who()
	}
	return fmt.Sprintf("rank %d of %s", w.on.rank, commName(j.byID[w.on.comm].info))
}

// roots are those that are waited for and don't wait: where all chains end. Who waits and comes to none of them waits in a circle, one of
// which is returned for each group of such.
func roots(waits map[actor][]wait, back map[actor][]path) (ends []actor, circles [][]wait) {
	seen := make(map[actor]bool)
	for _, list := range waits {
		for _, w := range list {
			if len(waits[w.on]) == 0 && !seen[w.on] {
				seen[w.on] = true
				ends = append(ends, w.on)
			}
		}
	}
	slices.SortFunc(ends, order)
	free := make(map[actor]bool) // those who come to an end
	for _, e := range ends {
		for a := range tree(e, back) {
			free[a] = true
		}
	}
	var stuck []actor
	for a := range waits {
		if !free[a] {
			stuck = append(stuck, a)
		}
	}
	slices.SortFunc(stuck, order)
	told := make(map[actor]bool)
	for _, a := range stuck {
		if circle := circleFrom(a, waits, told); circle != nil {
			circles = append(circles, circle)
		}
	}
	return ends, circles
}

// circleFrom walks from an actor that comes to no end until it meets itself; nil if the walk leads to where another was.
func circleFrom(a actor, waits map[actor][]wait, told map[actor]bool) []wait {
	at := make(map[actor]int)
	var walk []wait
	for {
		if i, met := at[a]; met {
			for _, w := range walk {
				told[actorOf(w.d.m)] = true
			}
			return walk[i:]
		}
		if told[a] {
			return nil
		}
		at[a] = len(walk)
		walk = append(walk, waits[a][0])
		a = waits[a][0].on
	}
}
