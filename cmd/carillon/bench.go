package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/bench"
)

func newBench(stdout, stderr *os.File) *cobra.Command {
	var plan bench.Plan
	var sizes string
	var asJSON bool
	var gpu gpuFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure all-reduce between processes, between ranks of one process, and on GPUs",
		Long: `Measure all-reduce (float32, sum) between processes of this host and between ranks of one process: the
median latency, the bus bandwidth as defined by nccl-tests, and the allocations per operation on the data path, without
those of telemetry. If Open MPI is installed (mpirun and mpicc), the same sizes are measured with it, and the ratio is
shown.

With --gpu N, measure collectives between N ranks on this machine's NVIDIA GPUs instead; ranks share GPUs if there are
fewer. The GPU's times are those of single calls, of calls in a CUDA graph, and of a copy of as many bytes; the host's
times are those of a call, and of the driver's launch of an empty kernel. Sizes and bus bandwidth (of graphs) are as
defined by nccl-tests: for all_gather what a rank receives, for reduce_scatter what it sends.

If NCCL is found and each rank has its own GPU, each size is also measured with NCCL, in alternation with Carillon, and
the ratio of Carillon's time to NCCL's is shown. NCCL's functions are called directly, from one thread per rank, without
any Carillon code around them. NCCL's graphs have a communicator of their own, because a graph slows down the other
calls on its communicator. --beside adds measurements of other libraries, from files with lines of JSON:

  {"library": "PyTorch", "collective": "all_reduce", "ranks": 2, "bytes": 8,
   "eager": {"p50_ns": 6100}, "graph": {"p50_ns": 5800}}`,
		Example: `  carillon bench
  carillon bench --processes 2 --in-process 0 --sizes 8,64K,64M
  carillon bench --gpu 2 --sizes 8:1G
  carillon bench --gpu 2 --collective all_gather,reduce_scatter
  carillon bench --json > all-reduce.jsonl`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(gpu.check(cmd), completePlan(&plan, sizes)); err != nil {
				return usageError(cmd, err)
			}
			plan.Progress = stderr
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			if gpu.ranks > 0 {
				return gpu.bench(ctx, cmd, plan.Setup, asJSON, stdout, stderr)
			}
			results, skipped, err := bench.Run(ctx, plan)
			switch {
			case ctx.Err() != nil, errors.Is(err, context.Canceled):
				return errInterrupted
			case err != nil:
				return err
			case asJSON:
				return writeJSONLines(stdout, results)
			}
			if skipped != "" {
				fmt.Fprintln(stderr, "No comparison with Open MPI:", skipped)
			}
			return bench.Write(stdout, results)
		},
	}
	cmd.Flags().StringVar(&sizes, "sizes", "8:64M",
		`sizes in bytes: "8,64K", or a range "8:64M" (each 8 times the previous)`)
	setupFlags(cmd, &plan.Setup, 500*time.Millisecond, 20_000)
	cmd.Flags().IntSliceVar(&plan.Processes, "processes", []int{2, 4, 8, 16}, "numbers of processes; 0 for none")
	cmd.Flags().IntSliceVar(&plan.InProcess, "in-process", []int{2, 4}, "numbers of ranks in one process; 0 for none")
	cmd.Flags().BoolVar(&plan.Compare, "mpi", true, "compare with Open MPI if it is installed")
	gpu.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print lines of JSON instead of a table")
	return cmd
}

// setupFlags adds the flags of a Setup, apart from its sizes, with the defaults for budget and max.
func setupFlags(cmd *cobra.Command, s *bench.Setup, budget time.Duration, most int) {
	cmd.Flags().DurationVar(&s.Budget, "budget", budget, "time to spend on one size")
	cmd.Flags().IntVar(&s.Min, "min", 5, "minimum number of iterations for one size")
	cmd.Flags().IntVar(&s.Max, "max", most, "maximum number of iterations for one size")
}

// completeSetup checks the flags of a Setup, and parses the sizes.
func completeSetup(s *bench.Setup, sizes string) (err error) {
	if s.Sizes, err = bench.ParseSizes(sizes); err != nil {
		return fmt.Errorf("--sizes: %w", err)
	}
	return cmp.Or(
		allow(s.Min >= 1, "--min", s.Min, "1 or more"),
		allow(s.Max >= s.Min, "--max", s.Max, "--min or more"),
		allow(s.Budget > 0, "--budget", s.Budget, "a duration above 0"),
	)
}

// completePlan checks the flags, and parses the sizes.
func completePlan(plan *bench.Plan, sizes string) (err error) {
	if err := cmp.Or(
		completeSetup(&plan.Setup, sizes),
		several("--processes", &plan.Processes),
		several("--in-process", &plan.InProcess),
	); err != nil {
		return err
	}
	if len(plan.Processes)+len(plan.InProcess) == 0 {
		return errors.New("--processes and --in-process are both 0: nothing to measure; give one of them 2 or more")
	}
	plan.Self, err = os.Executable()
	return err
}

const maxBenchRanks = 1024

// several checks numbers of ranks, and removes 0, which means none.
func several(flag string, ns *[]int) error {
	*ns = slices.DeleteFunc(*ns, func(n int) bool { return n == 0 })
	for _, n := range *ns {
		if err := allow(n >= 2 && n <= maxBenchRanks, flag, n, "2 to 1024, or 0 for none"); err != nil {
			return err
		}
	}
	return nil
}

func newBenchWorker(stdout *os.File) *cobra.Command {
	return &cobra.Command{
		Use:    bench.WorkerCommand + " SETUP",
		Short:  "One rank of bench",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var setup bench.Setup
			if err := json.Unmarshal([]byte(args[0]), &setup); err != nil {
				return err
			}
			return bench.Worker(cmd.Context(), setup, stdout)
		},
	}
}
