package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/runtime/node"
)

// agentFlags say what an agent follows, and what it asks. attach has some of them.
type agentFlags struct {
	job, tapeDir string
	accept       []int
	join         []string
}

func newAgent() *cobra.Command {
	var a agentFlags
	cmd := &cobra.Command{
		Use:   "agent [flags]",
		Short: "Provide telemetry, RAS and health for this machine's processes, from their tapes",
		Long: `Follow the tapes of all processes on this machine that run no telemetry of their own: NCCL programs
started by carillon attach, and Carillon programs that switched it off. The agent exports their spans and metrics,
detects stalls, diagnoses which rank holds the job up, publishes verdicts, and serves a health endpoint with a page
for each process. carillon status, watch, comms and postmortem work as with any other job.

Run one agent on each machine: as a DaemonSet, from a Slurm prolog, or as part of carillon attach. It may start before
or after the processes. They don't depend on it: if it ends, they continue, and the next agent follows them. If another
agent on the machine, such as carillon attach, follows a job, this agent follows the job only when that one ends.

The agent is configured by the same variables as a program with telemetry: CARILLON_HEALTH_ADDR, CARILLON_RAS_WEBHOOKS,
CARILLON_STALL_THRESHOLD, OTEL_TRACES_EXPORTER and so on. Its metrics have the labels job and rank: set honor_labels
in Prometheus.

The agents of a job's machines find each other, so that the job has one verdict that all of them know. An agent looks
for the others on rank 0's machine, as the launcher names it (MASTER_ADDR, Slurm's node list), or on the machines of
--join, at ports 28029 to 28036, UDP and TCP. A name in --join may have several addresses. Agents encrypt their messages
with the job's secret: set CARILLON_JOB_SECRET_FILE or CARILLON_JOB_SECRET for each agent or each rank. Without a
secret, each machine has its own verdicts. When an agent ends, the others report that its processes are no longer
followed.

For ranks on machines without Carillon, the agent asks NCCL's own RAS (NCCL_RAS_ADDR) which of them don't respond. It
never does so while communicators are created or destroyed, or if this NCCL is known to crash when queried, as 2.28.9
is; carillon status then lists the NCCL issues, and --accept-nccl-bugs accepts their risk.

When a verdict names a process on this machine, the agent adds evidence shortly afterwards: the process's state, where
it waits in the kernel, its kernel stack if the agent runs as root, and, if py-spy is on the PATH, the Python stack of
its main thread or of another one that calls NCCL. When a verdict names no process, the agent adds the same for the
two processes that have waited longest, if they are on this machine.

Processes may run in containers, in pid namespaces below the agent's, if they write their tapes to a directory of this
machine (CARILLON_TAPE_DIR there, --tape-dir here). They are shown with this machine's pids. The agent must run as root
or as the owner of the tapes; it reports once which tapes it can't follow. If that directory has no room for a tape, the
process writes the tape to /dev/shm/carillon-UID or the directory for temporary files. The agent follows it there, too,
unless that directory is the container's own.

SIGINT and SIGTERM end the agent after it has exported what it has read.`,
		Example: `  carillon agent
  carillon agent --job train-1a2b
  CARILLON_JOB_SECRET_FILE=/run/secret carillon agent --join node0,node1
  CARILLON_HEALTH_ADDR=0.0.0.0:9400 CARILLON_HEALTH_TOKEN_FILE=/run/token carillon agent --tape-dir /dev/shm/tapes
  OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 carillon agent`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			agent, err := a.start(ctx)
			if err != nil {
				return err
			}
			if url := agent.URL(); url != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "carillon: agent: a page for each process is at %s\n", url)
			}
			<-ctx.Done()
			stop() // a second signal ends the agent at once
			return agent.Stop(context.WithoutCancel(ctx))
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&a.job, "job", "", "follow only the processes of this job (default: all jobs)")
	f.StringVar(&a.tapeDir, "tape-dir", "",
		"directory of the jobs' tapes (default: CARILLON_TAPE_DIR, or one in memory)")
	a.acceptFlag(cmd)
	f.StringSliceVar(&a.join, "join", nil,
		"machines with agents of the same jobs, `host[:port]`,… (default: rank 0's)")
	completeJobFlag(cmd, false)
	_ = cmd.MarkFlagDirname("tape-dir")
	return cmd
}

// acceptFlag adds the flag with which the user accepts the risk of NCCL's bugs.
func (a *agentFlags) acceptFlag(cmd *cobra.Command) {
	cmd.Flags().IntSliceVar(&a.accept, "accept-nccl-bugs", nil,
		"NCCL issues to accept, such as 1762,1996: query NCCL about ranks without a tape although it may crash the job")
}

// start starts an agent as the environment configures it; the flags take precedence.
func (a *agentFlags) start(ctx context.Context) (*node.Agent, error) {
	opts := []node.Option{node.FromEnv(), node.WithNCCLBugs(a.accept...)}
	if a.tapeDir != "" {
		opts = append(opts, node.WithTapeDir(a.tapeDir))
	}
	if len(a.join) > 0 {
		opts = append(opts, node.WithJoin(a.join...))
	}
	agent, err := node.StartAgent(ctx, a.job, opts...)
	if wrong, ok := errors.AsType[*node.FieldError](err); ok && flagOf[wrong.Field] != "" {
		return nil, errors.New(wrong.Text(flagOf[wrong.Field]))
	}
	return agent, err
}

// flagOf has the flags for the fields of an agent's configuration that can be invalid.
var flagOf = map[string]string{"RAS.AcceptNCCLBugs": "--accept-nccl-bugs", "RAS.Join": "--join"}
