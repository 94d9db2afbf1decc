package simulate

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/jobsim/meshed"
)

// Sizes are the numbers of ranks up to most, from 64 on, by which it can be seen how costs grow.
func Sizes(most int) []int {
	var sizes []int
	for n := 64; n < most; n *= 4 {
		sizes = append(sizes, n)
	}
	return append(sizes, most)
}

// Plans is a run: jobs that differ in their size alone.
type Plans struct {
	meshed.Plan
	Sizes    []int
	Progress io.Writer // a line for each thing that happens; nil is none
}

// Validate says what is wrong with a plan.
func (p Plans) Validate() error {
	for _, n := range p.Sizes {
		p.Ranks = n
		if err := p.Plan.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Run simulates all of them. It must be called in a bubble of synctest.
func Run(ctx context.Context, p Plans) (results []meshed.Result, err error) {
	for _, n := range p.Sizes {
		one := p.Plan
		one.Ranks = n
		var progress func(string)
		if p.Progress != nil {
			progress = func(line string) { fmt.Fprintf(p.Progress, "%5d ranks: %s\n", n, line) }
		}
		r, err := meshed.Run(ctx, one, progress)
		if err != nil {
			return results, fmt.Errorf("%d ranks: %w", n, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// Wrong tells whether something was told that is wrong, or not told.
func Wrong(results []meshed.Result) bool {
	for _, r := range results {
		if len(r.False)+len(r.Missed) > 0 {
			return true
		}
	}
	return false
}

// Write prints what a person wants to know: a line for each size, and below it what was wrong.
func Write(w io.Writer, results []meshed.Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\t\tkill\tmembers know\tstop\tmembers know\tcut\tsleep\tall\tanalysis\twrong\tquiet, a member\t\t\t")
	fmt.Fprintln(t, "ranks\tmembers\ttold\tfirst – last\ttold\tfirst – "+
		"last\ttold\ttold\tknow\tcomputes\ttold\tB/s\tpackets/s\tgrowth\t")
	for i := range results {
		r := &results[i]
		kill, stop := worst(r, meshed.FaultKill), worst(r, meshed.FaultStop)
		cut, sleep := worst(r, meshed.FaultPartition), worst(r, meshed.FaultSleep)
		growth := "1"
		if i > 0 && results[0].Bytes > 0 {
			growth = fmt.Sprintf("%.2f", r.Bytes/results[0].Bytes)
		}
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%.0f\t%.1f\t%s\t\n", r.Ranks, r.Members,
			show(kill.Verdict), span(&kill), show(stop.Verdict), span(&stop), show(cut.Verdict), show(sleep.Verdict),
			show(sleep.Known),
			show(r.Analysis), len(r.False)+len(r.Missed), r.Bytes, r.Packets, growth)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		for _, text := range r.False {
			fmt.Fprintf(w, "\n%d ranks: wrong: %s", r.Ranks, text)
		}
		for _, text := range r.Missed {
			fmt.Fprintf(w, "\n%d ranks: missed: %s", r.Ranks, text)
		}
	}
	if Wrong(results) {
		fmt.Fprintln(w)
	}
	if len(results) > 0 {
		fmt.Fprintf(w, "\nseed %d\n", results[0].Seed)
	}
	_, err := fmt.Fprint(w, `
kill, stop    a process ends, or is stopped and runs again; cut: a machine is cut off and comes back; sleep: a rank
              sleeps. While packets are lost or late for a while, nothing is to be told
told          when the verdict was told outside of the job, after the fault; of a rank that sleeps, after the others
              had waited for it for the stall threshold (5 s); the longest of all such faults
members know  when the first and the last process learnt of it; all know: when the last one knew the verdict
analysis      what the coordinator computes for a verdict, by this machine's clock: virtual time stands still meanwhile
wrong         verdicts of another reason or of others than the culprits, told twice, not told, or not withdrawn
quiet         what a member sends while the job goes well; growth: its bytes as a multiple of those of the first line
`)
	return err
}

func worst(r *meshed.Result, f meshed.Fault) (w meshed.Outcome) {
	for _, o := range r.Faults {
		if o.Fault != f {
			continue
		}
		w.Verdict, w.Known = max(w.Verdict, o.Verdict), max(w.Known, o.Known)
		w.MembersFirst, w.MembersLast = max(w.MembersFirst, o.MembersFirst), max(w.MembersLast, o.MembersLast)
	}
	return w
}

func show(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return words.Round(d).String()
}

func span(o *meshed.Outcome) string {
	if o.MembersLast == 0 {
		return "–"
	}
	return words.Round(o.MembersFirst).String() + " – " + words.Round(o.MembersLast).String()
}
