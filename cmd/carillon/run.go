package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/job"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/rendezvous/launch"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

func newRun(stdout, stderr *os.File) *cobra.Command {
	cfg := job.Config{
		Env:        os.Environ(),
		Stdout:     stdout,
		Stderr:     stderr,
		Rendezvous: os.Getenv("CARILLON_RENDEZVOUS"),
	}
	var stdin bool
	cmd := &cobra.Command{
		Use:   "run [flags] -- program [args]",
		Short: "Run a program as the ranks of a job",
		Long: `Run starts a program several times, as the ranks of one job, and holds them together.

Every rank gets torchrun's variables: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT,
and Carillon's own: CARILLON_JOB, CARILLON_JOB_SECRET_FILE, and with the flags for them CARILLON_TAPE_DIR and
CARILLON_HOSTID. Each line of output is shown with the rank that wrote it.

The ranks know each other by a secret: that of CARILLON_JOB_SECRET or CARILLON_JOB_SECRET_FILE, else a random one. It is
in no rank's environment. CARILLON_JOB_SECRET_FILE names a file with it, in memory if there is a /dev/shm, which the
job's user alone can read, and which is removed when the job has ended.

SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 go on to all ranks. After SIGINT or SIGTERM they have --grace
to end; a second one kills them.

When a rank fails, the others have --linger to say what they saw and to end by themselves. Then they get SIGTERM, and
after --grace SIGKILL. The exit code is that of the rank that failed first, or 128 and the signal's number; 2 is for a
wrong call, 126 and 127 for a program that can't be run or found. What a rank started ends with the rank.

A program that can do without some of its ranks is started with --min-ranks: as long as that many of this machine's
ranks live, or have ended well, a failure ends nothing. The exit code is 0 when the others end well; it is said which
ranks were lost. When too few are left, it is as above, and the exit code that of the rank that was one too many.

With --max-restarts, a job that failed is started again, all its ranks, on every machine where it failed: for programs
that go on from a checkpoint. A job that was told to end is not. Each rank finds TORCHELASTIC_RESTART_COUNT and
TORCHELASTIC_MAX_RESTARTS, as torchrun sets them; the exit code is that of the last time.

With --sd-file, Prometheus finds the ranks: each gets a port for its health endpoint, and the file names them with the
labels job, rank and host, as file_sd_configs reads it. It is there as long as the job.

A rank that ends by os.Exit, a panic or a signal can't send its last spans. They are on its tape; when the job has
ended, they are sent, once, if the OTEL_* variables of the ranks are the launcher's, too.

Tapes stay when the job has ended, for carillon postmortem. In the directory where they go by default, which is in
memory, it keeps those of the last 20 jobs; CARILLON_TAPE_KEEP says another number, or off, and then it counts for
--tape-dir and CARILLON_TAPE_DIR too. Tapes of processes that live are never removed.

On several machines, start it once on each, with the same --nnodes, --master-addr, --master-port and
secret, and with a --node-rank of its own. Where CARILLON_RENDEZVOUS names an etcd at which the ranks
meet (etcd://host:2379), --master-addr and --master-port aren't needed.`,
		Example: `  # four ranks on this machine
  carillon run -n 4 -- ./train --epochs 10

  # as if they were on two nodes, keeping a log per rank
  carillon run -n 4 --simulate-nodes 2 --tee logs -- ./train

  # watched by a Prometheus with file_sd_configs: [{files: [/run/carillon/*.json]}]
  carillon run -n 4 --sd-file /run/carillon/train.json -- ./train

  # training that goes on when ranks die, down to one
  carillon run -n 4 --min-ranks 1 -- ./train --elastic

  # training that goes on from its last checkpoint, three times at most
  carillon run -n 4 --max-restarts 3 -- ./train --resume

  # eight ranks on two machines
  export CARILLON_JOB_SECRET=…   # the same on both
  carillon run -n 4 --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --master-port 29500 -- ./train   # on 10.0.0.1
  carillon run -n 4 --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 29500 -- ./train   # on the other`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Program = args
			for flag, n := range map[string]int{"--simulate-nodes": cfg.Nodes, "--nnodes": cfg.Hosts} {
				if n == 0 { // in a job.Config it means 1, which a user who types it doesn't
					return usageError(cmd, &job.ConfigError{Field: flag, Value: "0", Allowed: "1 or more"})
				}
			}
			secret, err := launch.Secret(os.Getenv)
			if err != nil {
				return usageError(cmd, err)
			}
			cfg.Secret = string(secret)
			if stdin {
				cfg.Stdin = os.Stdin
			}
			signals := make(chan os.Signal, 16)
			signal.Notify(signals, forwarded()...)
			defer signal.Stop(signals)
			cfg.Signals = signals
			return run(cmd, cfg)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the program is the program's
	f.SortFlags = false
	f.IntVarP(&cfg.Ranks, "ranks", "n", 1, "how many ranks to start on this machine")
	f.IntVar(&cfg.Hosts, "nnodes", 1, "how many machines take part; carillon run is started on each")
	f.IntVar(&cfg.Host, "node-rank", 0, "which of them this one is, from 0")
	f.IntVar(&cfg.Nodes, "simulate-nodes", 1,
		"for tests: pretend that this one machine is so many (sets CARILLON_HOSTID)")
	f.StringVar(&cfg.MasterAddr, "master-addr", "", "where rank 0 listens: its machine's address (default: loopback)")
	f.IntVar(&cfg.MasterPort, "master-port", 0, "the port that rank 0 listens on (default: a free one)")
	f.StringVar(&cfg.Name, "job", os.Getenv("CARILLON_JOB"), "the job's name (default: made from the program's)")
	f.StringVar(&cfg.TapeDir, "tape-dir", "", "where the ranks put their tapes (sets CARILLON_TAPE_DIR)")
	f.StringVar(&cfg.TeeDir, "tee", "", "a folder that gets a log per rank, rank-0.log and so on")
	f.StringVar(&cfg.TargetsFile, "sd-file", "",
		"write where Prometheus finds the ranks of this machine, for its file_sd_configs (sets CARILLON_HEALTH_ADDR)")
	f.IntVar(&cfg.MinRanks, "min-ranks", 0,
		"go on when ranks fail, as long as so many of this machine's are left (default: all)")
	f.IntVar(&cfg.MaxRestarts, "max-restarts", 0, "how often to start all ranks again after a failure")
	f.DurationVar(&cfg.Linger, "linger", 3*time.Second, "when a rank failed: how long the others may end by themselves")
	f.DurationVar(&cfg.Grace, "grace", 10*time.Second, "how long between SIGTERM and SIGKILL")
	f.BoolVar(&stdin, "stdin", false, "let rank 0 read the standard input (others read nothing)")
	colorFlag(cmd, &cfg.Color, "colour the ranks' prefixes")
	f.BoolVarP(&cfg.Verbose, "verbose", "v", false,
		"say more: each rank's process id, and how it ended when all went well")
	f.BoolVarP(&cfg.Quiet, "quiet", "q", false, "say nothing but failures")
	return cmd
}

func run(cmd *cobra.Command, cfg job.Config) error {
	if _, err := sweepTapes(cmd, &cfg); err != nil {
		return err
	}
	cfg.TapesAt = cmp.Or(cfg.TapeDir, tape.DefaultDir())
	result, err := job.Run(cmd.Context(), cfg)
	if result != nil {
		sendLeft(cmd, &cfg)
	}
	_, wrong := errors.AsType[*job.ConfigError](err)
	switch {
	case wrong:
		return usageError(cmd, err)
	case err != nil:
		return cannotRun(err)
	case result.ExitCode() != 0:
		return exitCode(result.ExitCode()) // the job has printed why
	}
	return nil
}

// sendTime bounds the time in which the launcher sends the spans of dead ranks after the job's end.
const sendTime = 5 * time.Second

// sendLeft sends the spans on the tapes of ranks that ended by os.Exit, a panic or a signal, until a signal comes.
func sendLeft(cmd *cobra.Command, cfg *job.Config) {
	ctx, cancel := context.WithTimeout(cmd.Context(), sendTime)
	defer cancel()
	go func() {
		select {
		case <-cfg.Signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	sent, err := postmortem.SendLeft(ctx, cfg.TapesAt, postmortem.ExportOptions{
		Algorithm: func(n uint8) string { return algo.Algorithm(n).String() }, Logger: slog.New(slog.DiscardHandler),
	})
	note := cmd.ErrOrStderr()
	switch {
	case err == nil && sent.Failed > 0:
		err = fmt.Errorf("%s not taken", english.Plural(int(sent.Failed), "span was", "spans were"))
		fallthrough
	case err != nil:
		fmt.Fprintf(note,
			"carillon: not all spans on the tapes of ended ranks were sent (%v); the next job with the same "+
				"OTEL_* variables tries again\n", err)
	case sent.Spans > 0 && !cfg.Quiet:
		fmt.Fprintf(note, "carillon: sent %s that %s left on %s\n", english.Plural(int(sent.Spans), "span", ""),
			english.Plural(sent.Processes, "ended rank", ""),
			english.PluralWord(sent.Processes, "its tape", "their tapes"))
	}
}

// forwarded returns the signals that the launcher passes on: those that are not ignored, as under nohup, and SIGINT,
// which shells make every background job ignore. SIGPIPE is one of them, so that a closed output ends the job.
func forwarded() []os.Signal {
	all := []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGPIPE,
	}
	return slices.DeleteFunc(all, func(sig os.Signal) bool { return sig != syscall.SIGINT && signal.Ignored(sig) })
}
