package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/find"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/term"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/telemetry/otlp"
)

type postmortemFlags struct {
	postmortem.Options
	asJSON, export bool
	at             string
	color          term.ColorMode
	endpoint       string
	timeout        time.Duration
	sending        postmortem.ExportOptions
}

func newPostmortem() *cobra.Command {
	var a postmortemFlags
	cmd := &cobra.Command{
		Use:   "postmortem [JOB|FILE]…",
		Short: "Report what a job did and why it stopped, from its tapes",
		Long: `Report what a job did and why it stopped, from the tapes of its processes, running or dead.

The report begins with how the job ended and what was wrong, in the same words as verdicts on a running job. The job is
judged just before the first trouble (a rank that died or failed, a signal to the launcher), right after it, and at
the end; --at judges it at any other time that the tapes cover. Then follow each communicator's ranks side by side,
the numbers, sizes and durations of operations, and the last events of all ranks in order.

` + jobHelp + `

Tapes can also be named one by one. Copy those of several hosts into one directory, at any depth: the report aligns
their clocks by what the ranks did together, and says how exact that is. It also lists tapes that are missing, cut
short or of another version, and uses the rest. A launcher.log beside the tapes has what carillon run, attach or agent
noted: how processes ended, which signal the launcher got, and how long the job hung.

--export sends the spans that dead processes could not send, those of open operations and those of the last --window
before the process ended, to the collector of the OTEL_* variables or of --endpoint. They have the ids that the process
would have given them. A collector shows a span twice if it gets it twice: use --all, which sends every span that can
be derived from the tapes, only for a collector that has none of them.

The exit code is 0 if there is a report, whatever it says; 1 if spans could not be sent; 2 for a wrong call or if there
are no tapes.`,
		Example: `  carillon postmortem                                   # this user's last job
  carillon postmortem train-1a2b --last 200
  carillon postmortem /var/tapes/train-1a2b
  scp -r host-b:/dev/shm/carillon-1000/train-1a2b all/  # the same for each host; then
  carillon postmortem --since 10s --rank 2 all/
  carillon postmortem --at 10:42:07.5 all/              # a time as the report shows them
  carillon postmortem --json all/ | jq '.findings[0]'
  carillon postmortem --export --endpoint http://localhost:4318 all/`,
		ValidArgsFunction: completeJobs(math.MaxInt, true),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.run(cmd, args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&a.Job, "job", "",
		"the job to report, if the tapes are of several jobs (default: the one that wrote last)")
	f.IntVar(&a.Run, "run", 0,
		"the run, from 1, if the job was started several times under one name (default: the last)")
	f.StringVar(&a.at, "at", "", "judge the job at this time, written as in the report or in RFC 3339")
	f.IntVar(&a.Last, "last", 40, "the number of events to show; 0 for all")
	f.DurationVar(&a.Since, "since", 0, "only events within this time before the last one")
	f.StringVar(&a.Comm, "comm", "",
		"only events and operations of the communicator with this name or id prefix")
	f.IntSliceVar(&a.Ranks, "rank", nil, "only events and operations of these ranks of the job")
	f.BoolVar(&a.asJSON, "json", false, "print a JSON object")
	colorFlag(cmd, &a.color, "colours")
	f.BoolVar(&a.export, "export", false, "send the spans that dead processes did not send")
	f.StringVar(&a.endpoint, "endpoint", "", "where --export sends them (sets OTEL_EXPORTER_OTLP_ENDPOINT)")
	f.DurationVar(&a.sending.Window, "window", 5*time.Second,
		"how long before its end a process's spans may have been lost")
	f.BoolVar(&a.sending.All, "all", false, "let --export send all spans")
	f.DurationVar(&a.timeout, "timeout", time.Minute, "how long --export may take")
	completeJobFlag(cmd, true)
	return cmd
}

// tapesOf are the folders of the jobs' tapes, and the tapes among jobs. If jobs is empty, they are the default folders.
func tapesOf(jobs []string) (paths []string, err error) {
	if len(jobs) == 0 {
		jobs = []string{""}
	}
	for _, job := range jobs {
		of := []string{job}
		if info, err := os.Stat(job); err != nil || info.IsDir() {
			if of, err = find.Folders(job); err != nil {
				return nil, err
			}
		}
		paths = append(paths, of...)
	}
	return paths, nil
}

func (a *postmortemFlags) run(cmd *cobra.Command, jobs []string) error {
	leastRank := slices.Min(append(a.Ranks, 0))
	if err := cmp.Or(
		allow(a.sending.Window > 0, "--window", a.sending.Window, "more than 0"),
		allow(a.Last >= 0, "--last", a.Last, "0 or more"),
		allow(a.Since >= 0, "--since", a.Since, "0 or more"),
		allow(leastRank >= 0, "--rank", leastRank, "0 or more"),
	); err != nil {
		return err
	}
	if a.at != "" {
		var err error
		if a.At, err = time.Parse(time.TimeOnly, a.at); err != nil {
			a.At, err = time.Parse(time.RFC3339, a.at)
		}
		if err != nil {
			return fmt.Errorf("--at is %q, want a time such as 10:42:07.5 (UTC) or 2026-01-31T10:42:07.5Z", a.at)
		}
	}
	if !a.export && (a.endpoint != "" || a.sending.All) {
		return errors.New("--endpoint and --all need --export")
	}
	if cmd.Flags().Changed("endpoint") {
		if to, err := url.Parse(a.endpoint); err != nil || to.Host == "" ||
			to.Scheme != "http" && to.Scheme != "https" {
			return fmt.Errorf("--endpoint is %q, want a URL with http or https and a host, such as "+
				"http://localhost:4318",
				a.endpoint)
		}
	}
	a.sending.Algorithm = func(n uint8) string { return algo.Algorithm(n).String() }
	paths, err := tapesOf(jobs)
	if err != nil {
		return err
	}
	report, err := postmortem.Read(paths, a.Options)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if a.asJSON {
		err = writeJSON(out, report)
	} else {
		err = report.Write(out, postmortem.TextOptions{Width: term.Width(out), Color: a.color.On(out)})
	}
	if err != nil || !a.export {
		return err
	}
	return a.send(cmd, report)
}

func (a *postmortemFlags) send(cmd *cobra.Command, report *postmortem.Report) error {
	if err := a.chooseExporter(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	sent, err := report.Export(ctx, a.sending)
	note := cmd.ErrOrStderr()
	fmt.Fprintf(note, "carillon: sent %s of %s", english.Plural(int(sent.Spans), "span", ""),
		english.Plural(sent.Processes, "process", ""))
	if sent.Skipped > 0 {
		fmt.Fprintf(note, "; %s none to send, as they were sent or still will be", english.Plural(sent.Skipped,
			"other has", "others have"))
	}
	if sent.Failed > 0 {
		fmt.Fprintf(note, "; %s could not be sent", english.Plural(int(sent.Failed), "span", ""))
		if sent.Why != nil {
			fmt.Fprintf(note, ": %v", sent.Why)
		}
	}
	if sent.Untried > 0 {
		fmt.Fprintf(note, "; %s not tried (%v)",
			english.Plural(sent.Untried, "other process was", "other processes were"), context.Cause(ctx))
	}
	failed := sent.Failed > 0 || sent.Untried > 0
	if failed {
		fmt.Fprint(note, "; the tapes keep them: call it again when a collector listens, or with another --endpoint")
		if ctx.Err() != nil {
			err = nil // it says the same of each tape
		}
	}
	fmt.Fprintln(note)
	if err != nil {
		fmt.Fprintf(note, "carillon: %v\n", err)
	}
	if err != nil || failed {
		return exitCode(notSentCode)
	}
	return nil
}

// notSentCode is the exit code when spans could not be sent.
const notSentCode = 1

// chooseExporter sets the exporter's variables from the flags. The default is OpenTelemetry's: OTLP to a collector on
// this host.
func (a *postmortemFlags) chooseExporter() error {
	const kind, endpoint, traces = "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	var err error
	if a.endpoint != "" {
		err = errors.Join(os.Setenv(kind, "otlp"), os.Setenv(endpoint, a.endpoint), os.Setenv(traces, ""))
	} else if os.Getenv(kind) == "" {
		err = os.Setenv(kind, "otlp")
	}
	switch {
	case err != nil:
		return err
	case os.Getenv(kind) == "none":
		return errors.New("--export has nowhere to send spans: OTEL_TRACES_EXPORTER is none")
	case otlp.Disabled():
		return errors.New("--export has nowhere to send spans: OTEL_SDK_DISABLED is true")
	}
	return nil
}
