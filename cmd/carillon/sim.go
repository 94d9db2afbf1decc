package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/jobsim/meshed"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
)

// ranksPerProcess is the number of ranks on a machine with eight GPUs.
const ranksPerProcess = 8

// simulationGC trades memory for time: most allocations of a simulation live as long as a packet.
const simulationGC = 400

func newSim(stderr *os.File) *cobra.Command {
	plan := meshed.Plan{Each: ranksPerProcess}
	var most int
	var faults string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Inject faults into simulated jobs, and measure how soon RAS names the culprit",
		Long: `Simulate jobs of 64 to 4096 ranks in virtual time. Each process has the real membership protocol and
agent, on a simulated network, and its ranks call collectives. Processes are killed and stopped, a machine is
disconnected, a rank sleeps, packets are lost and delayed. The table shows how soon the culprit was named, whether
another rank was named, and the cost for each process. The command takes some minutes, most of them for 4096 ranks; up
to 1024 ranks take half a minute.

The seed determines all times to the nanosecond, except the computing time of the analysis, which is this machine's.
There are two exceptions: for some seeds, in jobs of up to ten processes, two timers of the membership library expire
at the same instant; and on a busy machine the Go runtime may preempt a computation, more likely in a large job. Two
events may then swap, which may change times and bytes, but not reasons and culprits.

The exit code is 1 if a verdict was wrong or missing.`,
		Example: `  carillon sim
  carillon sim --ranks 1024 --seed 7
  carillon sim --ranks 64 --faults kill,stop --duration 10m --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sizes := []int{most}
			if !cmd.Flags().Changed("ranks") { // several sizes, to show how the costs grow
				sizes = []int{64, 256, 1024, most}
			}
			var err error
			if plan.Faults, err = meshed.ParseFaults(faults); err != nil {
				return fmt.Errorf("--faults: %w", err)
			}
			for _, plan.Ranks = range sizes {
				if err := plan.Validate(); err != nil {
					return err
				}
			}
			debug.SetGCPercent(simulationGC)
			signal.Reset(os.Interrupt) // there is nothing to tidy up
			sim.Main(func(out *os.File) bool { return simulated(cmd, plan, sizes, asJSON, out, stderr) })
			return nil
		},
	}
	names := make([]string, 0, len(meshed.Faults()))
	for _, f := range meshed.Faults() {
		names = append(names, string(f))
	}
	cmd.Flags().IntVar(&most, "ranks", 4096,
		"ranks of the job (default: 64, 256, 1024 and 4096 in turn)")
	cmd.Flags().Lookup("ranks").DefValue = "0" // hides the default: the text describes it
	cmd.Flags().Uint64Var(&plan.Seed, "seed", 1, "the seed of the faults and of all times")
	cmd.Flags().DurationVar(&plan.Duration, "duration", 150*time.Second,
		"virtual time of each job: 30s without faults, then 20s for each")
	cmd.Flags().StringVar(&faults, "faults", strings.Join(names, ","),
		"the faults to inject; the seed determines their order")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print lines of JSON instead of a table")
	complete(cmd, "faults", names...)
	return cmd
}

func simulated(cmd *cobra.Command, plan meshed.Plan, sizes []int, asJSON bool, out, stderr *os.File) bool {
	var results []meshed.Result
	var err error
	for _, plan.Ranks = range sizes {
		var r meshed.Result
		r, err = meshed.Run(cmd.Context(), plan, func(line string) {
			fmt.Fprintf(stderr, "%5d ranks: %s\n", plan.Ranks, line)
		})
		if err != nil {
			err = fmt.Errorf("%d ranks: %w", plan.Ranks, err)
			break
		}
		results = append(results, r)
	}
	if err == nil && asJSON {
		err = writeJSONLines(out, results)
	} else if err == nil {
		err = writeSimulated(out, results)
	}
	if err != nil {
		fmt.Fprintf(stderr, "carillon: sim: %v\n", err)
		return false
	}
	return !wrong(results)
}

func wrong(results []meshed.Result) bool {
	return slices.ContainsFunc(results, func(r meshed.Result) bool { return len(r.False)+len(r.Missed) > 0 })
}

func writeSimulated(w io.Writer, results []meshed.Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t,
		"\t\tkill\tmembers know\tstop\tmembers know\tcut\tsleep\tall\tanalysis\twrong\tquiet, a member\t\t\t")
	fmt.Fprintln(t, "ranks\tmembers\tverdict\tfirst – last\tverdict\tfirst – "+
		"last\tverdict\tverdict\tknow\ttakes\tverdicts\tB/s\tpackets/s\tgrowth\t")
	for i := range results {
		r := &results[i]
		kill, stop := worst(r, meshed.FaultKill), worst(r, meshed.FaultStop)
		cut, sleep := worst(r, meshed.FaultPartition), worst(r, meshed.FaultSleep)
		growth := "1"
		if i > 0 && results[0].Bytes > 0 {
			growth = fmt.Sprintf("%.2f", r.Bytes/results[0].Bytes)
		}
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%.0f\t%.1f\t%s\t\n", r.Ranks, r.Members,
			took(kill.Verdict), span(&kill), took(stop.Verdict), span(&stop), took(cut.Verdict), took(sleep.Verdict),
			took(sleep.Known),
			took(r.Analysis), len(r.False)+len(r.Missed), r.Bytes, r.Packets, growth)
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
	if wrong(results) {
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "\nseed %d\n", results[0].Seed)
	_, err := fmt.Fprint(w, `
kill, stop    a process ends, or is stopped and continued; cut: a machine is disconnected and comes back; sleep: a rank
              sleeps. Lost and late packets must cause no verdict
verdict       the time from the fault to the verdict, or, for a rank that sleeps, from the end of the stall threshold
              (5 s); the longest of all faults of the kind
members know  when the first and the last process learned of the fault; all know: when the last one knew the verdict
analysis      the coordinator's computing time for a verdict, by this machine's clock, as virtual time stands still
wrong         verdicts with another reason or culprit, published twice, missing, or not withdrawn
quiet         traffic of a member of a healthy job; growth: its bytes as a multiple of those of the first line
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

func took(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return words.Round(d).String()
}

func span(o *meshed.Outcome) string {
	if o.MembersLast == 0 {
		return "–"
	}
	return words.Round(o.MembersFirst).String() + " – " + took(o.MembersLast)
}
