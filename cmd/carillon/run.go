package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
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
		Long: `Start a program several times on this machine, as the ranks of one job.

Each rank gets torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT)
and Carillon's own: CARILLON_JOB, CARILLON_JOB_SECRET_FILE and, with their flags, CARILLON_TAPE_DIR and
CARILLON_HOSTID. Each line of output is prefixed with the rank that wrote it.

Ranks authenticate each other with the job's secret. It comes from CARILLON_JOB_SECRET or
CARILLON_JOB_SECRET_FILE; otherwise a random one is made. Ranks get it in a file that only the job's user can
read and that is removed when the job ends, or by the user's next carillon run if the launcher was killed.
It is never in their environment.

SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are forwarded to all ranks. After SIGINT or SIGTERM, the ranks
have the time of --grace to end, and output that nobody reads for a second is dropped; a second signal kills them.

When a rank fails, the others have the time of --linger to report what they saw and to end by themselves. Then they
get SIGTERM and, after --grace, SIGKILL. Processes that a rank started end with the rank. The exit code is that of the
rank that failed first, or 128 plus the signal's number; 2 means a wrong call, 126 and 127 a program that can't be run
or found.

With --min-ranks, the job continues after failures as long as that many of this machine's ranks are running or have
succeeded. The exit code is 0 if the remaining ranks succeed. If too few are left, the job ends as above, with the exit
code of the rank whose failure left too few.

With --max-restarts, all ranks of a failed job are started again, on every machine where it failed. This is for
programs that resume from a checkpoint. A job that was stopped by a signal is not restarted. Ranks get
TORCHELASTIC_RESTART_COUNT and TORCHELASTIC_MAX_RESTARTS; the exit code is that of the last attempt.

With --sd-file, each rank gets a port for its health endpoint, and the file lists the endpoints for Prometheus'
file_sd_configs, with the labels job, rank and host. It is removed when the job ends.

Ranks that end by os.Exit, a panic or a signal can't export their last spans. These are on the tape, and the launcher
exports them when the job has ended, if the ranks have the launcher's OTEL_* variables.

Tapes are kept after the job, for carillon postmortem. The default directory, which is in memory, holds those of the
last 20 jobs. CARILLON_TAPE_KEEP sets another number or "off", and then also applies to --tape-dir and
CARILLON_TAPE_DIR. Tapes of running processes are never removed.

For a job on several machines, start carillon run on each, with the same --nnodes, --master-addr, --master-port and
secret, and its own --node-rank. If CARILLON_RENDEZVOUS names an etcd (etcd://host:2379), --master-addr and
--master-port aren't needed.`,
		Example: `  # four ranks on this machine
  carillon run -n 4 -- ./train --epochs 10

  # the same on two simulated nodes, with a log file per rank
  carillon run -n 4 --simulate-nodes 2 --tee logs -- ./train

  # scraped by a Prometheus with file_sd_configs: [{files: [/run/carillon/*.json]}]
  carillon run -n 4 --sd-file /run/carillon/train.json -- ./train

  # training that survives the death of ranks, down to one
  carillon run -n 4 --min-ranks 1 -- ./train --elastic

  # training that resumes from its last checkpoint, three times at most
  carillon run -n 4 --max-restarts 3 -- ./train --resume

  # eight ranks on two machines
  export CARILLON_JOB_SECRET=…   # the same on both
  carillon run -n 4 --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --master-port 29500 -- ./train   # on 10.0.0.1
  carillon run -n 4 --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 29500 -- ./train   # on the other`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Program = args
			for flag, n := range map[string]int{"--simulate-nodes": cfg.Nodes, "--nnodes": cfg.Hosts} {
				if n == 0 { // job.Config takes 0 for 1, but a user who types 0 doesn't mean 1
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
			return run(cmd, cfg)
		},
	}
	addRunFlags(cmd, &cfg, &stdin)
	return cmd
}

func addRunFlags(cmd *cobra.Command, cfg *job.Config, stdin *bool) {
	f := cmd.Flags()
	f.SetInterspersed(false) // arguments after the program are its own
	f.SortFlags = false
	f.IntVarP(&cfg.Ranks, "ranks", "n", 1, "how many ranks to start on this machine")
	f.IntVar(&cfg.Hosts, "nnodes", 1, "how many machines the job spans; start carillon run on each")
	f.IntVar(&cfg.Host, "node-rank", 0, "the index of this machine, from 0")
	f.IntVar(&cfg.Nodes, "simulate-nodes", 1,
		"for tests: number of simulated nodes to split this machine's ranks into (sets CARILLON_HOSTID)")
	f.StringVar(&cfg.MasterAddr, "master-addr", "", "where rank 0 listens: its machine's address (default: loopback)")
	f.IntVar(&cfg.MasterPort, "master-port", 0, "the port that rank 0 listens on (default: a free one)")
	f.StringVar(&cfg.Name, "job", os.Getenv("CARILLON_JOB"), "the job's name (default: derived from the program's)")
	f.StringVar(&cfg.TapeDir, "tape-dir", "", "directory for the ranks' tapes (sets CARILLON_TAPE_DIR)")
	f.StringVar(&cfg.TeeDir, "tee", "", "directory for a log file per rank: rank-0.log and so on")
	f.StringVar(&cfg.TargetsFile, "sd-file", "",
		"file for Prometheus' file_sd_configs, with this machine's ranks (sets CARILLON_HEALTH_ADDR)")
	f.IntVar(&cfg.MinRanks, "min-ranks", 0,
		"continue after failures while at least this many ranks of this machine are left (default: all)")
	f.IntVar(&cfg.MaxRestarts, "max-restarts", 0, "how many times to restart all ranks after a failure")
	f.DurationVar(&cfg.Linger, "linger", 3*time.Second, "how long the other ranks may run on after a failure")
	f.DurationVar(&cfg.Grace, "grace", 10*time.Second, "the time between SIGTERM and SIGKILL")
	f.BoolVar(stdin, "stdin", false, "connect standard input to rank 0 (the others read nothing)")
	colorFlag(cmd, &cfg.Color, "colour the ranks' prefixes")
	f.BoolVarP(&cfg.Verbose, "verbose", "v", false,
		"also print each rank's process id, and a line if all went well")
	f.BoolVarP(&cfg.Quiet, "quiet", "q", false, "print only failures")
	complete(cmd, "job") // a new one has no known name
}

func run(cmd *cobra.Command, cfg job.Config) error {
	if _, err := sweepTapes(cmd, &cfg); err != nil {
		return err
	}
	cfg.TapesAt = cmp.Or(cfg.TapeDir, tape.DefaultDir())
	signals := forwarded()
	defer signal.Stop(signals)
	cfg.Signals = signals
	cfg.AtEnd = func(ctx context.Context) string { return sendLeft(ctx, &cfg) }
	result, err := job.Run(cmd.Context(), cfg)
	_, wrong := errors.AsType[*job.ConfigError](err)
	switch {
	case wrong:
		return usageError(cmd, err)
	case err != nil:
		return cannotRun(err)
	}
	return exitCode(result.ExitCode()) // the job has printed why
}

// sendTime bounds the time in which the launcher sends the spans of dead ranks after the job's end.
const sendTime = 5 * time.Second

// sendLeft sends the spans on the tapes of ranks that ended by os.Exit, a panic or a signal, and says what came of it.
func sendLeft(ctx context.Context, cfg *job.Config) string {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	sent, err := postmortem.SendLeft(ctx, cfg.TapesAt, postmortem.ExportOptions{
		Algorithm: func(n uint8) string { return algo.Algorithm(n).String() }, Logger: slog.New(slog.DiscardHandler),
	})
	switch {
	case err == nil && sent.Failed > 0:
		err = fmt.Errorf("%s not taken", english.Plural(int(sent.Failed), "span was", "spans were"))
		if sent.Why != nil {
			err = fmt.Errorf("%w: %w", err, sent.Why)
		}
		fallthrough
	case err != nil:
		return fmt.Sprintf("not all spans on the tapes of ended ranks were sent (%v); the next job with the same "+
			"OTEL_* variables tries again", err)
	case sent.Spans > 0 && !cfg.Quiet:
		return fmt.Sprintf("sent %s that %s left on %s", english.Plural(int(sent.Spans), "span", ""),
			english.Plural(sent.Processes, "ended rank", ""),
			english.PluralWord(sent.Processes, "its tape", "their tapes"))
	default:
		return ""
	}
}

// forwarded delivers the signals that the launcher passes on, until signal.Stop: those that are not ignored, as under
// nohup, and SIGINT, which shells ignore for every background job. SIGPIPE is one of them, so that a closed output ends
// the job.
func forwarded() chan os.Signal {
	signals := make(chan os.Signal, 16)
	for _, sig := range []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGPIPE,
	} {
		if sig == syscall.SIGINT || !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	return signals
}
