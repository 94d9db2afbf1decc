package corpus

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// Bars are what a Table must reach.
type Bars struct {
	Right     float64       // of all trials, named rightly, live and after the end: at least
	Innocents float64       // the largest share of trials in which an innocent rank is named
	Delay     time.Duration // median time from the threshold until it was said live: at most
}

// DefaultBars are the bars that Carillon holds itself to.
var DefaultBars = Bars{Right: 0.97, Innocents: 0.005, Delay: 500 * time.Millisecond}

// Table sums up scores by the kind of the fault. The zero value is empty.
type Table struct {
	rows []*row
}

type row struct {
	name            string
	healthy         bool
	trials          int
	right, innocent [2]int // live, after
	delays          []time.Duration
}

// Add adds what was said about a trial of a kind.
func (t *Table) Add(k *Kind, live, after Score) {
	i := slices.IndexFunc(t.rows, func(r *row) bool { return r.name == k.Name })
	if i < 0 {
		i = len(t.rows)
		t.rows = append(t.rows, &row{name: k.Name, healthy: k.Healthy})
	}
	t.rows[i].add(live, after)
	if k.measured() && live.Right && live.Named {
		t.rows[i].delays = append(t.rows[i].delays, live.Delay)
	}
}

func (r *row) add(scores ...Score) {
	r.trials++
	for i := range scores {
		if scores[i].Right {
			r.right[i]++
		}
		if len(scores[i].Innocents) > 0 {
			r.innocent[i]++
		}
	}
}

// Write writes the table, and tells whether it reaches the bars.
func (t *Table) Write(w io.Writer, bars Bars) (ok bool, err error) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "fault\ttrials\tright live\tafter\tinnocents live\tafter\tmedian delay\t")
	rows := slices.Clone(t.rows)
	slices.SortStableFunc(rows, func(a, b *row) int { return cmp.Compare(a.name, b.name) })
	var sum, healthy row
	sum.name = "all"
	for _, r := range rows {
		r.write(tab)
		sum.trials += r.trials
		for i := range r.right {
			sum.right[i] += r.right[i]
			sum.innocent[i] += r.innocent[i]
			if r.healthy {
				healthy.innocent[i] += r.innocent[i]
			}
		}
		sum.delays = append(sum.delays, r.delays...)
	}
	sum.write(tab)
	if err := tab.Flush(); err != nil {
		return false, err
	}
	var missed []string
	miss := func(below bool, format string, args ...any) {
		if below {
			missed = append(missed, fmt.Sprintf(format, args...))
		}
	}
	for i, when := range []string{"live", "after the end"} {
		miss(share(sum.right[i], sum.trials) < bars.Right, "right %s in less than %.1f %%", when, 100*bars.Right)
		miss(share(sum.innocent[i], sum.trials) > bars.Innocents, "innocents named %s in more than %.1f %%",
			when, 100*bars.Innocents)
		miss(healthy.innocent[i] > 0, "somebody named %s in a healthy job", when)
	}
	miss(sum.median() > bars.Delay, "the median delay is above %v", bars.Delay)
	for _, m := range missed {
		fmt.Fprintln(w, "below the bar:", m)
	}
	return len(missed) == 0, nil
}

func (r *row) write(w io.Writer) {
	delay := "-"
	if len(r.delays) > 0 {
		delay = fmt.Sprintf("%.2f s", r.median().Seconds())
	}
	fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t\n", r.name, r.trials, percent(r.right[0], r.trials),
		percent(r.right[1], r.trials), percent(r.innocent[0], r.trials), percent(r.innocent[1], r.trials), delay)
}

// median is the median of the delays; 0 if there are none.
func (r *row) median() time.Duration {
	if len(r.delays) == 0 {
		return 0
	}
	slices.Sort(r.delays)
	return r.delays[len(r.delays)/2]
}

func share(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

func percent(n, of int) string { return fmt.Sprintf("%.1f %%", 100*share(n, of)) }
