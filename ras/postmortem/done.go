package postmortem

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// kind names operations that are counted together.
type kind struct {
	name, engine string
	call         lifecycle.Call
	class        uint8
}

// done sums up the operations of a kind over all tapes.
type done struct {
	kind
	sum   tape.Tally
	ranks []DoneBy // in the order of their processes
}

// maxCount is the most that a counter can plausibly have: an operation every 100 ns for five months.
const maxCount = 1 << 47

// count takes the tape's tallies that have counted something, and adds a problem for what is wrong with them.
func (p *process) count(r *tape.Reader) {
	tallies, err := r.AppendTallies(nil)
	if err != nil && !p.cut { // a tape that was cut short has a problem already
		p.problem("has counts that can't be read: " + why(err))
	}
	if len(tallies) == p.header.Tallies {
		p.problem(fmt.Sprintf("has room to count %s of operations, all of it used: others, if any, are not counted",
			count(len(tallies), "kind")))
	}
	wrong := 0
	for i := range tallies {
		switch t := &tallies[i]; {
		case !plausible(t):
			wrong++
		case t.Count() > 0:
			p.tallies = append(p.tallies, *t)
		}
	}
	if wrong > 0 {
		p.problem("has counts that can't be right: " + count(wrong, "kind") + " of operations " +
			english.PluralWord(wrong, "is", "are") + " left out")
	}
}

// plausible tells whether a tally's counters are possible. They have no checksum, so a damaged tape may have any value.
func plausible(t *tape.Tally) bool {
	most := max(slices.Max(t.Durations[:]), slices.Max(t.Bandwidths[:]), t.Ordinary)
	return most <= maxCount && t.Time >= 0 && t.OrdinaryTime >= 0 && t.Bandwidth >= 0 &&
		t.Bandwidth <= math.MaxFloat64/maxCount
}

// allDone sums up the tallies of all tapes that the filters leave, the kinds that took most time first.
func allDone(procs []*process, opts *Options) []Done {
	byKind := make(map[kind]*done)
	for _, p := range procs {
		for i := range p.tallies {
			t := &p.tallies[i]
			if !p.selected(t.Name, opts) {
				continue
			}
			k := kind{t.Name, t.Engine, t.Call, t.SizeClass}
			if byKind[k] == nil {
				byKind[k] = &done{kind: k}
			}
			byKind[k].add(p, t)
		}
	}
	all := slices.SortedFunc(maps.Values(byKind), func(a, b *done) int {
		return cmp.Or(cmp.Compare(b.sum.Time, a.sum.Time), cmp.Compare(a.name, b.name), cmp.Compare(a.engine, b.engine),
			cmp.Compare(a.call, b.call), cmp.Compare(a.class, b.class))
	})
	list := make([]Done, 0, len(all))
	for _, d := range all {
		list = append(list, d.report())
	}
	return list
}

// add adds a tally of the process; processes come in their order. A process of several ranks has a tally for each, and
// doesn't say which is whose.
func (d *done) add(p *process, t *tape.Tally) {
	d.sum.Add(t)
	if n := len(d.ranks); n == 0 || d.ranks[n-1].Process != p.index || p.severalRanks {
		d.ranks = append(d.ranks, DoneBy{Rank: p.rank, Process: p.index})
	}
	by := &d.ranks[len(d.ranks)-1]
	by.Operations += t.Count()
	by.Bytes += t.Bytes
	by.Time += t.Time
}

// selected tells whether the options ask for what the process did on communicators of that name. A process of several
// ranks doesn't say which of them did what.
func (p *process) selected(name string, opts *Options) bool {
	if len(opts.Ranks) > 0 && !slices.Contains(opts.Ranks, p.rank) {
		return false
	}
	return opts.Comm == "" || opts.Comm == name ||
		slices.ContainsFunc(p.members, func(m *member) bool { return m.Name == name && opts.wants(m) })
}

func (d *done) report() Done {
	t := &d.sum
	r := Done{
		Comm: d.name, Engine: d.engine, Call: d.call.String(), UpTo: classBound(d.class), Operations: t.Count(),
		Bytes: t.Bytes, Time: t.Time,
		Mean: t.Time / time.Duration(t.Count()), Median: quantile(t, 0.5), P99: quantile(t, 0.99), Ranks: d.ranks,
	}
	if d.call == lifecycle.CallBarrier {
		r.UpTo = 0
	}
	for i, n := range t.Durations {
		if n > 0 {
			r.Durations = append(r.Durations, DurationCount{durationBound(i), n})
		}
	}
	var measured uint64
	for i, n := range t.Bandwidths {
		bound := -1.0
		if i < tape.BandwidthBuckets-1 {
			bound = tape.BandwidthBound(i)
		}
		if n > 0 {
			r.Bandwidths = append(r.Bandwidths, BandwidthCount{bound, n})
		}
		measured += n
	}
	if measured > 0 {
		r.Bandwidth = t.Bandwidth / float64(measured)
	}
	return r
}

// quantile is an upper bound of the q-quantile of durations; -1 if it is above all bounds.
func quantile(t *tape.Tally, q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(t.Count())))
	var seen uint64
	for i, n := range t.Durations {
		if seen += n; seen >= rank {
			return durationBound(i)
		}
	}
	return -1
}

// durationBound is a bucket's upper bound; -1 for the last, which has none.
func durationBound(i int) time.Duration {
	if i >= tape.DurationBuckets-1 {
		return -1
	}
	return tape.DurationBound(i)
}

// classBound is the largest size of a class.
func classBound(class uint8) uint64 {
	if class >= tape.SizeClasses-1 {
		return math.MaxUint64
	}
	return 1 << (2 * class)
}
