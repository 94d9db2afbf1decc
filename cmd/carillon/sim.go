package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/simulate"
	"github.com/carillon-rt/carillon/ras/jobsim/meshed"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
)

// simulationGC trades memory for time: most of what a simulation allocates lives for as long as a packet.
const simulationGC = 400

func newSim(stderr *os.File) *cobra.Command {
	plans := simulate.Plans{Plan: meshed.Plan{}}
	var most int
	var faults string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Let faults happen to simulated jobs, and show how soon RAS tells which rank is at fault",
		Long: `Simulate jobs with RAS, from 64 ranks up to 4096, in virtual time: real membership and real agents of each
process, on a simulated network, and ranks that pass through collectives. Processes are killed and stopped, a machine
is cut off, a rank sleeps, packets are lost and late. The table shows how soon it was told which rank is at fault,
that nothing else was told, and what it costs each process. It takes some minutes, most of them for 4096 ranks; up to
1024, half a minute.

All of it follows from the seed and repeats to the nanosecond, but what the analysis computes, which this machine's
clock measures. Two exceptions: with a few seeds of small jobs, of up to ten processes, two timers of the membership
library are due at one instant; and on a busy machine the Go runtime may interrupt what computes, the larger the job
the likelier. Which of two then is first may change times and bytes; reasons and culprits stay.

The exit code is 1 if something was told that is wrong, or not told.`,
		Example: `  carillon sim
  carillon sim --ranks 1024 --seed 7
  carillon sim --ranks 64 --faults kill,stop --duration 10m --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plans.Sizes = []int{most}
			if !cmd.Flags().Changed("ranks") {
				plans.Sizes = simulate.Sizes(most)
			}
			plans.Progress = stderr
			var err error
			if plans.Faults, err = meshed.ParseFaults(faults); err != nil {
				return fmt.Errorf("--faults: %w", err)
			}
			if err := plans.Validate(); err != nil {
				return fmt.Errorf("sim: %w", err)
			}
			debug.SetGCPercent(simulationGC)
			signal.Reset(os.Interrupt) // there is nothing to tidy up
			sim.Main(func(out *os.File) bool { return simulated(cmd, plans, asJSON, out, stderr) })
			return nil
		},
	}
	names := make([]string, 0, len(meshed.Faults()))
	for _, f := range meshed.Faults() {
		names = append(names, string(f))
	}
	cmd.Flags().IntVar(&most, "ranks", 4096,
		"ranks of the job; if it isn't given, 64, 256, 1024 and 4096 one after the other")
	cmd.Flags().Lookup("ranks").DefValue = "0" // says nothing: the text tells what happens without it
	cmd.Flags().IntVar(&plans.Each, "ranks-per-member", 8, "ranks of a process")
	cmd.Flags().Uint64Var(&plans.Seed, "seed", 1, "what happens follows from it")
	cmd.Flags().DurationVar(&plans.Duration, "duration", 150*time.Second,
		"virtual time of each job: 30s without faults, then 20s for each")
	cmd.Flags().StringVar(&faults, "faults", strings.Join(names, ","),
		"what happens, in an order that follows from the seed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "a JSON object a line instead of a table")
	complete(cmd, "faults", names...)
	return cmd
}

// simulated runs the plans in virtual time, and tells whether nothing was wrong.
func simulated(cmd *cobra.Command, plans simulate.Plans, asJSON bool, out, stderr *os.File) bool {
	results, err := simulate.Run(cmd.Context(), plans)
	if err == nil && asJSON {
		enc := json.NewEncoder(out)
		for i := range results {
			if err = enc.Encode(&results[i]); err != nil {
				break
			}
		}
	} else if err == nil {
		err = simulate.Write(out, results)
	}
	if err != nil {
		fmt.Fprintf(stderr, "carillon: sim: %v\n", err)
		return false
	}
	return !simulate.Wrong(results)
}
