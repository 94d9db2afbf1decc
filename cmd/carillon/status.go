package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/endpoint"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/find"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/term"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/view"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/watch"
	"github.com/carillon-rt/carillon/health"
)

func newStatus() *cobra.Command {
	var t target
	var asJSON bool
	var color term.ColorMode
	cmd := &cobra.Command{
		Use:   "status [JOB]",
		Short: "Report whether a running job is healthy, and which rank holds it up if not",
		Long: `Report the health of a running job: the open verdicts with their evidence, the ranks by state, the
communicators that are busy, and other problems.

` + targetHelp + `

The exit code is 0 if the job is healthy, 1 for a warning, 2 if something is critical, as most verdicts are, and 3 if
the job's health is unknown: there is no such job, no process answers, RAS is off (CARILLON_RAS=off), or the call was
wrong.`,
		Example: `  carillon status                                # the job that started last on this host
  carillon status train-1a2b
  carillon status --json | jq -r '.verdicts[].text'
  carillon status --url https://node7:9400 --cacert ca.pem --token-file /run/secrets/carillon
  carillon status || alert "$(carillon status)"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			report, err := t.report(ctx, args)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			text := []byte(report.Text(term.Width(out), color.On(out)))
			if asJSON {
				if text, err = report.JSON(); err != nil {
					return err
				}
			}
			if _, err := out.Write(text); err != nil {
				return err
			}
			return exitCode(report.Code())
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	colorFlag(cmd, &color, "colours")
	return cmd
}

// report asks all endpoints, and merges their answers. The error tells why nothing is known.
func (t *target) report(ctx context.Context, args []string) (*view.Report, error) {
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	job, targets, err := t.find(args)
	for ; err == nil && job != nil; job, _, err = t.find(args) {
		if targets = watch.Targets(job); len(targets) > 0 {
			break
		}
		if time.Since(job.Started) >= find.TakenUpTime {
			return nil, errors.New(job.Silence())
		}
		select {
		case <-time.After(find.TakenUpTime / 20):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	began := time.Now()
	answers, errs := client.All(ctx, targets)
	if len(answers) == 0 {
		if job != nil && job.Silence(errs...) != "" {
			return nil, errors.New(job.Silence(errs...))
		}
		return nil, errors.Join(errs...)
	}
	var problems []string
	for _, err := range errs {
		problems = append(problems, err.Error())
	}
	others := watch.Others(job, targets, answers)
	more, problem := askOthers(ctx, client, others)
	maps.Copy(answers, more)
	problems = append(problems, problem...)
	if time.Since(began) > atOnce { // the first answers are old, and their sentences have the ages of that time
		again, _ := client.All(ctx, slices.Collect(maps.Keys(answers)))
		maps.Copy(answers, again)
	}
	var v view.View
	var snapshots []*health.Snapshot
	for _, t := range slices.Concat(targets, others) {
		if s := answers[t]; s != nil {
			snapshots = append(snapshots, s)
		}
	}
	now := time.Now()
	v.Merge(now, snapshots...)
	if job != nil {
		v.Tapes(watch.Tapes(job))
	}
	report := v.Report(now)
	report.Problems = problems
	if job != nil {
		report.Problems = append(report.Problems, unseen(report, job)...)
	}
	return report, nil
}

// mostOthers bounds the endpoints of other hosts that are asked: each of them knows the verdicts on the whole job.
const mostOthers = 64

// atOnce is the longest time in which answers count as given at one moment. After it, all that have answered are asked
// once more; one that doesn't answer again keeps its first answer.
const atOnce = 500 * time.Millisecond

// askOthers asks endpoints on other hosts, some of which may be out of reach: it reports in one line how many didn't
// answer, and why the first of them didn't.
func askOthers(ctx context.Context, client *endpoint.Client, others []endpoint.Target) (
	answers map[endpoint.Target]*health.Snapshot, problems []string,
) {
	if more := len(others) - mostOthers; more > 0 {
		others = others[:mostOthers]
		problems = append(problems,
			fmt.Sprintf("%d more endpoints on other hosts were not asked: name those that matter with --url", more))
	}
	answers, errs := client.All(ctx, others)
	if len(errs) > 0 {
		problems = append(problems, fmt.Sprintf("%d of the %d endpoints on other hosts didn't answer: %v", len(errs),
			len(others), errs[0]))
	}
	return answers, problems
}

// unseen names the other hosts whose communicators are not shown because the hosts didn't answer.
func unseen(r *view.Report, job *find.Job) []string {
	var hosts []string
	known := map[string]bool{"": true}
	for i := range job.Processes {
		known[job.Processes[i].Host] = true
	}
	for i := range r.Ranks {
		if h := r.Ranks[i].Host; !known[h] && !slices.Contains(r.Told, r.Ranks[i].Rank) {
			known[h] = true
			hosts = append(hosts, h)
		}
	}
	if len(hosts) == 0 {
		return nil
	}
	text := "communicators and conditions of other hosts are not shown; ask there, or with --url: " + hosts[0]
	if len(hosts) > 1 {
		text += fmt.Sprintf(" and %d more", len(hosts)-1)
	}
	return []string{text}
}
