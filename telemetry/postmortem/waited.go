package postmortem

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// When it is clear who was waited for. A rank may be early or late by chance, once, or in turn; what counts is what it
// adds up to.
const (
	// lagOperations is how many operations each rank must have made of the kind.
	lagOperations = 200
	// lagMoments is in how many of them, at least, half of the time must have been lost: ranks begin apart, and the
	// first operation of all makes up for it.
	lagMoments = 10
	// lagUnlike is by what part of them, at most, the ranks' numbers may differ: a job that was killed is not
	// everywhere equally far.
	lagUnlike = 50
	// lagShare is what part of the ranks' lives, at least, must have been lost.
	lagShare = 20
)

// synchronizes tells whether no rank can leave the collective before all have come to it, so that the time in it is the
// wait for the last, and little else.
func synchronizes(call lifecycle.Call) bool {
	switch call {
	case lifecycle.CallAllReduce, lifecycle.CallAllGather, lifecycle.CallReduceScatter, lifecycle.CallAllToAll, lifecycle.CallBarrier:
		return true
	default:
		return false
	}
}

// lag is ranks that were waited for in a kind of collective, and those that waited.
type lag struct {
	*done
	late, others []*part // by the time that they spent, the least first
	lost         time.Duration
}

// waited finds out for whom ranks waited most of all; nil if that isn't clear of any.
func (j *job) waited(all []*done) *Waited {
	fellows := make(map[string][][]*process)
	var most *lag
	for _, d := range all {
		if !synchronizes(d.call) {
			continue
		}
		groups, ok := fellows[d.name]
		if !ok {
			groups = j.fellows(d.name)
			fellows[d.name] = groups
		}
		for _, g := range groups {
			if l := d.lag(g); l != nil && (most == nil || l.lost > most.lost) {
				most = l
			}
		}
	}
	if most == nil {
		return nil
	}
	return most.report()
}

// fellows groups the processes that are the ranks of the same communicators of a name, one each. Where a rank has no
// tape, or one that doesn't tell all, there is no telling who was last.
func (j *job) fellows(name string) [][]*process {
	together := make(map[string][]*process)
	var order []string
	for _, p := range j.procs {
		if key := p.belongs(name); key != "" && !p.many && !p.unsure {
			if together[key] == nil {
				order = append(order, key)
			}
			together[key] = append(together[key], p)
		}
	}
	var groups [][]*process
	for _, key := range order {
		g := together[key]
		in := make(map[*process]bool)
		for _, p := range g {
			in[p] = true
		}
		whole := len(g) > 1
		for _, m := range g[0].members {
			if m.info.Name == name && m.info.Rank >= 0 {
				whole = whole && j.byID[m.info.ID].consistsOf(in)
			}
		}
		if whole {
			groups = append(groups, g)
		}
	}
	return groups
}

// belongs is the ids of the communicators of a name that the process is a rank of.
func (p *process) belongs(name string) string {
	var ids []string
	for _, m := range p.members {
		if m.info.Name == name && m.info.Rank >= 0 {
			ids = append(ids, string(m.info.ID[:]))
		}
	}
	slices.Sort(ids)
	var key string
	for _, id := range ids {
		key += id
	}
	return key
}

// consistsOf tells whether the communicator's ranks are those processes, and all that it has.
func (c *comm) consistsOf(procs map[*process]bool) bool {
	ranks := 0
	for _, m := range c.members {
		if m.info.Rank < 0 {
			continue
		}
		ranks++
		if !procs[m.proc] {
			return false
		}
	}
	return len(c.byRank) == ranks && c.info.Size == ranks
}

// lag compares what the ranks of a group spent in a kind of collective; nil if it is not clear that some were waited
// for.
func (d *done) lag(group []*process) *lag {
	var parts []*part
	var least, most uint64
	for _, p := range d.parts { // which are in the order of the group's
		if len(parts) == len(group) || p.proc != group[len(parts)] {
			continue
		}
		n := p.sum.Count()
		if len(parts) == 0 {
			least = n
		}
		least, most = min(least, n), max(most, n)
		parts = append(parts, p)
	}
	if len(parts) < len(group) || least < lagOperations || (most-least)*lagUnlike > most {
		return nil
	}
	slices.SortStableFunc(parts, func(a, b *part) int { return cmp.Compare(a.sum.Time, b.sum.Time) })
	half := parts[len(parts)/2].sum.Time / 2
	n := 0
	for n < len(parts)/2 && parts[n].sum.Time <= half {
		n++
	}
	if n == 0 {
		return nil
	}
	l := &lag{done: d, late: parts[:n], others: parts[n:]}
	latest, soonest, other := l.late[n-1], l.others[0], l.others[len(l.others)/2]
	l.lost = other.sum.Time - latest.sum.Time
	switch {
	case latest.sum.Time > soonest.sum.Time/4*3: // no border between those and these
	case l.lost < lived(group)/lagShare:
	case moments(&other.sum, l.lost/2) < lagMoments:
	case !l.overall():
	default:
		return l
	}
	return nil
}

// lived is for how long the one of the processes that lived longest did what its tape knows.
func lived(procs []*process) (longest time.Duration) {
	for _, p := range procs {
		longest = max(longest, p.wallTime(p.last).Sub(p.header.Created)-p.header.WallShift())
	}
	return longest
}

// moments is in how many operations, at least, so much time was spent, if it was in the longest.
func moments(t *tape.Tally, spent time.Duration) (operations uint64) {
	for i := tape.DurationBuckets - 1; i >= 0 && spent > 0; i-- {
		n := t.Durations[i]
		if n == 0 {
			continue
		}
		longest := durationBound(i)
		if longest < 0 { // nobody knows; together they took no more than all
			longest = t.Time / time.Duration(n)
		}
		n = min(n, uint64((spent-1)/max(longest, 1))+1)
		operations += n
		spent -= time.Duration(n) * longest
	}
	return operations
}

// overall tells whether the ranks that came late did so because of what they did outside of Carillon: one that waited
// in other operations instead was only the next to wait.
func (l *lag) overall() bool {
	var totals []time.Duration
	for _, p := range l.others {
		totals = append(totals, p.proc.busy())
	}
	slices.Sort(totals)
	for _, p := range l.late {
		if addTimes(p.proc.busy(), l.lost/2) > totals[len(totals)/2] {
			return false
		}
	}
	return true
}

// busy is how long the process was in operations.
func (p *process) busy() (total time.Duration) {
	for i := range p.tallies {
		total = addTimes(total, p.tallies[i].Time)
	}
	return total
}

func (l *lag) report() *Waited {
	r := &Waited{Comm: l.name, Call: l.call.String(), UpTo: classBound(l.class)}
	if l.call == lifecycle.CallBarrier {
		r.UpTo = 0
	}
	for _, p := range l.late {
		r.Ranks = append(r.Ranks, p.proc.rankIn(l.name))
	}
	slices.Sort(r.Ranks)
	for _, p := range slices.Concat(l.late, l.others) {
		r.Operations = max(r.Operations, p.sum.Count())
	}
	r.Time, r.Others = l.late[len(l.late)-1].sum.Time, l.others[0].sum.Time
	what := fmt.Sprintf("%s %s of %s", number(r.Operations), r.Call, cmp.Or(clean(l.name), "communicators without a name"))
	if size := sizeText(r.UpTo); size != "" {
		what += " (" + size + ")"
	}
	r.Text = fmt.Sprintf("%s %s waited for: %s spent %s in %s, %s %s.", capital(words.Ranks(r.Ranks)), plural(len(l.late), "was", "were"),
		plural(len(l.late), "it", "they"), spent(l.late), what, plural(len(l.others), "the other", "the others"), spent(l.others))
	return r
}

// spent is the least and the most time of ranks in the order of theirs.
func spent(parts []*part) string {
	return between(span(int64(parts[0].sum.Time)), span(int64(parts[len(parts)-1].sum.Time)))
}

// rankIn is the process's rank in the job, as far as that is known; in a communicator of a name otherwise.
func (p *process) rankIn(name string) int {
	for _, m := range p.members {
		if m.info.Name == name && m.info.Rank >= 0 {
			return m.jobRank()
		}
	}
	return p.rank
}
