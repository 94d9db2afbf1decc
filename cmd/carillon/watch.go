package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/endpoint"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/find"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/term"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/watch"
	"github.com/carillon-rt/carillon/ras/bus"
)

type watchFlags struct {
	target
	follow, lines  bool
	severity       string
	lasts          time.Duration
	color          term.ColorMode
	stdout, stderr *os.File
}

func newWatch(stdout, stderr *os.File) *cobra.Command {
	l := watchFlags{stdout: stdout, stderr: stderr}
	cmd := &cobra.Command{
		Use:   "watch [JOB]",
		Short: "Watch a job while it runs: verdicts, ranks, communicators, events",
		Long: `Watch a job while it runs. On a terminal, a screen shows the open verdicts, the ranks by state, the busy
communicators, other problems and the last events; q or ^C quits. If the output is not a terminal, or with
--lines, each event is printed as a line, starting with the events that the processes remember.

` + targetHelp + `

Events come from one process at a time, and from another one when that process ends or stops. Processes are queried
for their state rarely enough not to slow the job down. The last state of a process that no longer answers is shown as
stale, with its age.

Watching ends with the job; with --follow, it goes on with the next job. The exit code is 0, or 3 if there is no such
job, no process ever answered, or the call was wrong.`,
		Example: `  carillon watch                               # the job that started last on this host
  carillon watch train-1a2b
  carillon watch --severity warning | tee -a train.events
  carillon watch --follow                      # one job after the other
  carillon watch --url http://node7:9400 --url http://node8:9400`,
		RunE: func(cmd *cobra.Command, args []string) error { return l.run(cmd.Context(), args) },
	}
	l.flags(cmd)
	f := cmd.Flags()
	f.BoolVarP(&l.follow, "follow", "f", false,
		"when the job has ended, wait for the next one (of the same name, if JOB is a name)")
	f.BoolVar(&l.lines, "lines", false, "print a line for each event, also on a terminal")
	choiceFlag(cmd, &l.severity, "severity", "the lowest severity of events to show: info, warning or critical",
		"info", "warning", "critical")
	f.DurationVar(&l.lasts, "for", 0, "stop after this time (default: when the job ends)")
	colorFlag(cmd, &l.color, "colours of the screen")
	return cmd
}

func (l *watchFlags) run(ctx context.Context, args []string) error {
	if err := allow(l.lasts >= 0, "--for", l.lasts, "more than 0"); err != nil {
		return err
	}
	least, err := bus.ParseSeverity(l.severity)
	if err != nil {
		return err
	}
	client, err := l.client()
	if err != nil {
		return err
	}
	defer client.Close()
	job, targets, err := l.find(args)
	var missing *find.NotFoundError
	if err != nil && (!l.follow || !errors.As(err, &missing)) {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if l.lasts > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.lasts)
		defer cancel()
	}
	display, end, err := l.display()
	if err != nil {
		return err
	}
	defer end()
	result := watch.End{Job: job == nil && len(targets) == 0} // with --follow, there may be no job yet
	for {
		if result.Job {
			if job, targets = l.next(ctx, args, display, result.Text); job == nil && len(targets) == 0 {
				return nil
			}
		}
		result = watch.Run(ctx, watch.Config{
			Client: client, Job: job, Targets: targets, Display: display, Least: least,
		})
		if !result.Job || !l.follow {
			break
		}
	}
	end()
	switch {
	case !result.Heard && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v: %s", l.lasts, result.Text)
	case !result.Heard:
		return errors.New(result.Text)
	case result.Text != "":
		fmt.Fprintf(l.stderr, "carillon: %s\n", result.Text)
	}
	return nil
}

// display returns a screen, or lines. end restores the terminal; it may be called twice.
func (l *watchFlags) display() (d watch.Display, end func(), err error) {
	if l.lines || !term.IsTerminal(l.stdout) || os.Getenv("TERM") == "dumb" {
		return watch.NewLines(l.stdout, l.stderr), func() {}, nil
	}
	return watch.NewScreen(l.stdout, os.Stdin, l.color.On(l.stdout))
}

const nextEach = time.Second

// next waits for the next job; nil if there is none before ctx ends, or the user quits.
func (l *watchFlags) next(ctx context.Context, args []string, display watch.Display, why string) (*find.Job,
	[]endpoint.Target,
) {
	if why != "" {
		why += "; "
	}
	ticker := time.NewTicker(nextEach)
	defer ticker.Stop()
	for {
		if job, targets, err := l.find(args); err == nil {
			return job, targets
		}
		display.State(nil, why+"waiting for the next job")
		select {
		case <-ticker.C:
		case <-display.Redraw():
		case <-display.Quit():
			return nil, nil
		case <-ctx.Done():
			return nil, nil
		}
	}
}
