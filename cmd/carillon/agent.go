package main

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/runtime/node"
)

func newAgent() *cobra.Command {
	var job, tapeDir string
	var accept []int
	var join []string
	cmd := &cobra.Command{
		Use:   "agent [flags]",
		Short: "Follow the tapes of this machine's processes, with telemetry, RAS and health for them",
		Long: `Agent follows the tapes of all processes of this machine that have no telemetry of their own: programs on
NCCL with libcarillon-nccl.so (carillon attach), and others that switched it off. It exports their spans and metrics,
detects stalls, diagnoses which rank holds the job up, pushes verdicts, and has a health endpoint with a page for each
process. carillon status, watch, comms and postmortem work on such a job as on any other.

Run one agent on a machine: a DaemonSet, a Slurm prolog, or the child of carillon attach. It may start before the
processes or after them. The processes don't depend on it: when it ends, they continue, and the next agent follows them.

It reads the variables that a program with telemetry reads: CARILLON_HEALTH_ADDR, CARILLON_RAS_WEBHOOKS,
CARILLON_STALL_THRESHOLD, OTEL_TRACES_EXPORTER and so on. Metrics have the labels job and rank: set honor_labels in
Prometheus.

The agents on a job's machines find each other, so that the job has one verdict, which all of them know. An agent looks
for the others on the machine of rank 0, which the ranks' launcher names (MASTER_ADDR, Slurm's list of nodes), or on the
machines of --join, at ports 28029 to 28036, UDP and TCP. They encrypt their messages with the job's secret: give each
agent, or each rank, CARILLON_JOB_SECRET_FILE or CARILLON_JOB_SECRET. Without a secret, each machine has its own
verdicts. When an agent ends, the others report that its processes are no longer followed.

For ranks without a tape on this machine, because Carillon isn't installed on theirs, the agent asks NCCL's own RAS (at
NCCL_RAS_ADDR) which ranks don't answer. It doesn't ask while communicators are made or ended, nor an NCCL that such a
question is known to crash, such as 2.28.9; carillon status then lists the numbers of NCCL's bugs, and
--accept-nccl-bugs accepts their risk.

When a verdict names a process on this machine, the agent adds evidence to it a moment later: the process's state, its
place in the kernel, the kernel's stack if the agent is root, and the Python stack of its main thread if py-spy is on
the PATH.

The processes may be in containers: in pid namespaces below the agent's, with a folder of this machine for their tapes
(CARILLON_TAPE_DIR there, --tape-dir here). Their pids are shown as this machine numbers them. The agent must run as
root or as the tapes' user; it reports once which tapes it can't follow.

SIGINT and SIGTERM end it after it has exported what it has read.`,
		Example: `  carillon agent
  carillon agent --job train-1a2b
  CARILLON_JOB_SECRET_FILE=/run/secret carillon agent --join node0,node1
  CARILLON_HEALTH_ADDR=0.0.0.0:9400 CARILLON_HEALTH_TOKEN_FILE=/run/token carillon agent --tape-dir /dev/shm/tapes
  OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 carillon agent`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			a, err := startAgent(ctx, job, tapeDir, accept, join...)
			if err != nil {
				return err
			}
			if url := a.URL(); url != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "carillon: agent: %s has a page for each process\n", url)
			}
			<-ctx.Done()
			stop() // a second signal ends it at once
			return a.Stop(context.WithoutCancel(ctx))
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&job, "job", "", "follow the processes of this job alone (default: all jobs)")
	f.StringVar(&tapeDir, "tape-dir", "", "where the tapes of jobs are (default: CARILLON_TAPE_DIR, or where they go)")
	acceptFlag(cmd, &accept)
	f.StringSliceVar(&join, "join", nil, "machines with agents of the same jobs, `host[:port]`,… (default: rank 0's)")
	_ = cmd.RegisterFlagCompletionFunc("job", completeJobs(1, false))
	_ = cmd.MarkFlagDirname("tape-dir")
	return cmd
}

// acceptFlag adds the flag by which the user accepts the risk of NCCL's bugs.
func acceptFlag(cmd *cobra.Command, accept *[]int) {
	cmd.Flags().IntSliceVar(accept, "accept-nccl-bugs", nil,
		"ask NCCL of ranks without a tape though these may crash the job, such as 1762,1996")
}

// startAgent starts an agent as the environment configures it, with the flags before it.
func startAgent(ctx context.Context, job, tapeDir string, accept []int, join ...string) (*node.Agent, error) {
	opts := []node.Option{node.FromEnv(), node.WithNCCLBugs(accept...)}
	if tapeDir != "" {
		opts = append(opts, node.WithTapeDir(tapeDir))
	}
	if len(join) > 0 {
		opts = append(opts, node.WithJoin(join...))
	}
	return node.StartAgent(ctx, job, opts...)
}
