package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/endpoint"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/find"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

type target struct {
	urls              []string
	tokenFile         string
	cacert, cert, key string
	timeout           time.Duration
}

// jobHelp explains JOB in the help of commands that read tapes.
const jobHelp = `JOB is a job's name or the directory of its tapes. Without JOB, or if the directory has the tapes
of several jobs, it is the job that wrote last.`

// targetHelp explains JOB, and which processes are asked, in the help of commands for running jobs.
const targetHelp = `JOB is a job's name or the directory of its tapes. Without JOB, or if the directory has the
tapes of several jobs, it is the job that started last.

The tapes say where the processes' health endpoints are. For a job on other hosts, name the endpoint of any of its
processes with --url. All processes know the same verdicts, but each reports only its own communicators and
conditions. Processes on other hosts are queried too, up to a limit, if their endpoints listen beyond loopback
(CARILLON_HEALTH_ADDR). They get the token over TLS, or in the clear if an endpoint of --url gets it in the clear.

The token for endpoints that require one comes from --token-file, CARILLON_HEALTH_TOKEN or CARILLON_HEALTH_TOKEN_FILE.`

func (t *target) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&t.urls, "url", nil,
		"health endpoints to query, such as http://host:port, instead of a job on this host")
	f.StringVar(&t.tokenFile, "token-file", "", "a file whose first line is the token")
	f.StringVar(&t.cacert, "cacert", "",
		"a PEM file with the CA certificates of the endpoints (default: the system's)")
	f.StringVar(&t.cert, "cert", "", "a PEM file with a client certificate")
	f.StringVar(&t.key, "key", "", "a PEM file with the key of --cert")
	f.DurationVar(&t.timeout, "timeout", endpoint.DefaultTimeout, "how long an endpoint may take to answer")
	cmd.ValidArgsFunction = completeJobs(1, false)
	cmd.Args = oneJob
	cmd.Annotations = map[string]string{tellsHealth: "in its exit code"}
}

// completeJobs completes up to most jobs, or folders. Jobs that have ended are included only if ended is set.
func completeJobs(most int, ended bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return find.Names(tape.DefaultDir(), ended), cobra.ShellCompDirectiveDefault
	}
}

// completeJobFlag completes --job with the jobs of the folder in the first argument, or else of the default one. Jobs
// that have ended are included only if ended is set.
func completeJobFlag(cmd *cobra.Command, ended bool) {
	_ = cmd.RegisterFlagCompletionFunc("job",
		func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return find.Names(append(args, tape.DefaultDir())[0], ended), cobra.ShellCompDirectiveNoFileComp
		})
}

func (t *target) client() (*endpoint.Client, error) {
	if err := allow(t.timeout > 0, "--timeout", t.timeout, "more than 0"); err != nil {
		return nil, err
	}
	token := ""
	if t.tokenFile == "" {
		token, t.tokenFile = os.Getenv("CARILLON_HEALTH_TOKEN"), os.Getenv("CARILLON_HEALTH_TOKEN_FILE")
	}
	if token == "" && t.tokenFile != "" {
		text, err := os.ReadFile(t.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("the token: %w", err)
		}
		tokens := strings.Fields(string(text))
		if len(tokens) == 0 {
			return nil, fmt.Errorf("the token: there is none in %s", t.tokenFile)
		}
		token = tokens[0]
	}
	return endpoint.New(endpoint.Config{Token: token, CACert: t.cacert, Cert: t.cert, Key: t.key, Timeout: t.timeout})
}

func (t *target) find(args []string) (*find.Job, []endpoint.Target, error) {
	if len(t.urls) > 0 {
		if len(args) > 0 {
			return nil, nil, errors.New("a job and --url exclude each other")
		}
		var targets []endpoint.Target
		for _, u := range t.urls {
			to, err := endpoint.ParseURL(u)
			if err != nil {
				return nil, nil, err
			}
			targets = append(targets, to)
		}
		return nil, targets, nil
	}
	job, err := find.Find(strings.Join(args, ""))
	return job, nil, err
}
