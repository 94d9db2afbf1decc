package corpus

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// The bars of a Table. Excused trials don't count.
const (
	leastRight    = 0.97                   // share of right trials, live and after the end
	mostInnocents = 0.005                  // share of trials in which an innocent rank is named
	mostDelay     = 500 * time.Millisecond // median delay of the live verdict after the threshold
)

// Table sums up scores by the name of the fault's kind.
type Table map[string]*row

type row struct {
	trials                   int
	excused, right, innocent [2]int // live, after
	healthy                  [2]int // innocents of healthy jobs, likewise
	delays                   []time.Duration
}

// Add adds the scores of a trial.
func (t Table) Add(k *Kind, live, after Score) {
	r := t[k.Name]
	if r == nil {
		r = &row{}
		t[k.Name] = r
	}
	r.trials++
	for i, s := range []Score{live, after} {
		count := func(is bool, n *[2]int) {
			if is {
				n[i]++
			}
		}
		count(s.Excused, &r.excused)
		count(s.Right, &r.right)
		count(len(s.Innocents) > 0, &r.innocent)
		count(len(s.Innocents) > 0 && k.Healthy, &r.healthy)
	}
	if k.measured() && live.Right && live.Named {
		r.delays = append(r.delays, live.Delay)
	}
}

// Write writes the table, and tells whether it reaches the bars.
func (t Table) Write(w io.Writer) (ok bool, err error) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "fault\ttrials\texcused live\tafter\tright live\tafter\tinnocents live\tafter\tmedian delay\t")
	var all row
	for _, name := range slices.Sorted(maps.Keys(t)) {
		r := t[name]
		r.write(tab, name)
		all.trials += r.trials
		for i := range r.right {
			all.excused[i] += r.excused[i]
			all.right[i] += r.right[i]
			all.innocent[i] += r.innocent[i]
			all.healthy[i] += r.healthy[i]
		}
		all.delays = append(all.delays, r.delays...)
	}
	all.write(tab, "all")
	if err := tab.Flush(); err != nil {
		return false, err
	}
	ok = true
	miss := func(below bool, format string, args ...any) {
		if below {
			ok = false
			fmt.Fprintf(w, "below the bar: "+format+"\n", args...)
		}
	}
	for i, when := range []string{"live", "after the end"} {
		counted := float64(all.trials - all.excused[i])
		miss(float64(all.right[i]) < leastRight*counted, "right %s in less than %.1f %%", when, 100*leastRight)
		miss(float64(all.innocent[i]) > mostInnocents*counted, "innocents named %s in more than %.1f %%",
			when, 100*mostInnocents)
		miss(all.healthy[i] > 0, "somebody named %s in a healthy job", when)
	}
	miss(all.median() > mostDelay, "the median delay is above %v", mostDelay)
	return ok, nil
}

func (r *row) write(w io.Writer, name string) {
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t", name, r.trials, r.excused[0], r.excused[1])
	for _, counts := range [][2]int{r.right, r.innocent} {
		for i, n := range counts {
			if counted := r.trials - r.excused[i]; counted > 0 {
				fmt.Fprintf(w, "%.1f %%\t", 100*float64(n)/float64(counted))
			} else {
				fmt.Fprint(w, "-\t")
			}
		}
	}
	delay := "-"
	if len(r.delays) > 0 {
		delay = fmt.Sprintf("%.2f s", r.median().Seconds())
	}
	fmt.Fprintf(w, "%s\t\n", delay)
}

// median is the median of the delays; 0 if there are none.
func (r *row) median() time.Duration {
	if len(r.delays) == 0 {
		return 0
	}
	slices.Sort(r.delays)
	return r.delays[len(r.delays)/2]
}
