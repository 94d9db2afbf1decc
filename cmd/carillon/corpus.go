package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/trials"
	"github.com/carillon-rt/carillon/ras/jobsim/corpus"
)

type corpusFlags struct {
	trials, processes, most int
	seed                    uint64
	kinds                   []string
	why                     bool
}

func newCorpus() *cobra.Command {
	var s corpusFlags
	cmd := &cobra.Command{
		Use:   "corpus",
		Short: "Inject faults into training jobs, and score the verdicts",
		Long: `Simulate jobs built like training (tensor, data, pipeline and expert parallel; blocking, with goroutines,
asynchronous, in groups), each with up to two faults at a random moment, and score the verdicts on them: those of the
agents while the job runs ("live"), and those of the post-mortem after it has ended (left alone, cancelled, killed at
once or one by one). The right verdict is known, because the fault was injected.

Jobs run in virtual time, with the verdicts, agents and post-mortem of real jobs. With --processes, they run as real
processes, five times faster than in virtual time: each job takes some seconds. The seed determines a simulated job.

The table shows, for each kind of fault, in how many trials the right ranks were named for a right reason, and in how
many an innocent rank was named. A trial in which no rank was named doesn't count as right. If there are two faults, a
right verdict names both, or the one that the other's rank waits for. Trials in which no rank was named don't count if
there was nothing to diagnose: the fault did not happen, the job recovered, or, live, all processes ended at once. The
median delay is the time from the stall threshold to the right verdict.

The exit code is 0 if verdicts are right in 97 % of the trials, live and after the end, an innocent rank is named in at
most 0.5 % of them and in no healthy job, and the median delay is at most half a second; otherwise it is 1.`,
		Example: `  carillon corpus --trials 100
  carillon corpus --kind "wrong peer" --why
  carillon corpus --processes 40 --ranks 8`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	cmd.AddCommand(&cobra.Command{
		Use: trials.Command, Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error { return trials.Process(args) },
	})
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&s.trials, "trials", 25, "simulated trials of each kind")
	f.IntVar(&s.processes, "processes", 0,
		"run this many trials with real processes instead, of all kinds in turn")
	f.IntVar(&s.most, "ranks", 32, "maximum number of ranks of a job, 2 to 1024")
	f.Uint64Var(&s.seed, "seed", 1, "the first trial's seed; the others count up from it")
	f.StringSliceVar(&s.kinds, "kind", nil, "only these kinds of faults")
	f.BoolVar(&s.why, "why", false, "print each trial with a wrong verdict or without one")
	complete(cmd, "kind", kindNames()...)
	return cmd
}

func kindNames() []string {
	names := make([]string, 0, len(corpus.Kinds))
	for _, k := range corpus.Kinds {
		names = append(names, k.Name)
	}
	return names
}

type trial struct {
	kind *corpus.Kind
	seed uint64
}

func (s *corpusFlags) run(cmd *cobra.Command) error {
	if err := cmp.Or(
		allow(s.trials >= 1, "--trials", s.trials, "1 or more"),
		allow(s.processes >= 0, "--processes", s.processes, "0 or more"),
		allow(s.most >= 2 && s.most <= 1024, "--ranks", s.most, "2 to 1024"),
	); err != nil {
		return err
	}
	all, err := s.draw()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	table, err := s.play(ctx, cmd, all)
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	ok, err := table.Write(cmd.OutOrStdout())
	if err == nil && !ok {
		return exitCode(1)
	}
	return err
}

func (s *corpusFlags) draw() (all []trial, err error) {
	kinds := corpus.Kinds
	if len(s.kinds) > 0 {
		kinds = nil
		for _, name := range s.kinds {
			k := corpus.KindOf(name)
			if k == nil {
				return nil, fmt.Errorf("--kind is %q, allowed is %s", name, english.WordSeries(kindNames(), "or"))
			}
			kinds = append(kinds, k)
		}
	}
	for i := 0; s.processes > 0 && len(all) < s.processes; i++ {
		if k := kinds[i%len(kinds)]; k.Strike != corpus.Cuts {
			all = append(all, trial{k, s.seed + uint64(i)})
		} else if len(kinds) == 1 {
			return nil, fmt.Errorf("%q can't be done to real processes without the rights of root", k.Name)
		}
	}
	for i := 0; s.processes == 0 && i < s.trials; i++ {
		for _, k := range kinds {
			all = append(all, trial{k, s.seed + uint64(i)})
		}
	}
	return all, nil
}

// play runs the trials: simulated ones in parallel, real ones one after the other.
func (s *corpusFlags) play(ctx context.Context, cmd *cobra.Command, all []trial) (corpus.Table, error) {
	var (
		table  = corpus.Table{}
		mu     sync.Mutex
		played int
	)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	if s.processes > 0 {
		g.SetLimit(1)
	}
	for _, t := range all {
		g.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			res, err := s.one(ctx, t)
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", t.kind.Name, t.seed, err)
			}
			mu.Lock()
			defer mu.Unlock()
			s.score(cmd, table, res, t.kind)
			if played++; played%max(len(all)/20, 1) == 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "carillon: %d of %d trials\n", played, len(all))
			}
			return nil
		})
	}
	return table, g.Wait()
}

func (s *corpusFlags) one(ctx context.Context, t trial) (*corpus.Result, error) {
	folder, err := os.MkdirTemp("", "carillon-corpus-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // what is left is in the folder for temporary files
	if s.processes > 0 {
		return trials.Play(ctx, t.seed, s.most, t.kind, folder)
	}
	return corpus.Play(corpus.Draw(t.seed, s.most, t.kind), folder)
}

func (s *corpusFlags) score(cmd *cobra.Command, table corpus.Table, res *corpus.Result, kind *corpus.Kind) {
	live, after := res.Scores()
	table.Add(kind, live, after)
	if s.why && (live.Wrong() || after.Wrong()) {
		res.Write(cmd.OutOrStdout())
		fmt.Fprintln(cmd.OutOrStdout())
	}
}
