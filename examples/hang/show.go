package main

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	rendezvous "github.com/carillon-rt/carillon/runtime/rendezvous/launch"
	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// exported tells whether spans go to a collector, by the runtime's own rule.
func exported() bool {
	own, all := otlp.Asked("TRACES")
	to := os.Getenv("OTEL_TRACES_EXPORTER")
	return (own || all) && (to == "" || to == "otlp")
}

// show prints what will happen, and the commands that show it, each on a line to be copied to a shell.
func (r *rank) show(health string, missing int64) {
	job, tapes := whereabouts()
	var b strings.Builder
	fmt.Fprintf(&b,
		"job %s: for %v, rank %d of %d will not make the call that the others are in. Meanwhile, in "+
			"another terminal:\n",
		job, r.lasts, r.missing, r.world.Size())
	command := func(what, line string) { fmt.Fprintf(&b, "\n  %s:\n    %s\n", what, line) }
	if health == "" {
		b.WriteString("\n  There is no health page and no metrics, as CARILLON_HEALTH_ADDR says.\n")
	} else {
		health = strings.TrimSuffix(health, "/")
		command("watch which rank holds the job up (q quits; without --for, it lasts as long as the job)",
			carillonCommand()+" watch --for 20s "+tapes)
		command("what rank 0 is doing, since when, and which rank it waits for", "curl -s "+health+"/api/v1/comms")
		command("its health", "curl -s '"+health+"/healthz?verbose'")
		command("its metrics: operations that are in flight, and stalled (for CARILLON_STALL_THRESHOLD or longer)",
			"curl -s "+health+"/metrics | grep -E '^ccl_(operations_in_flight|operation_oldest|stalled|stall_age)'")
		b.WriteString("\n  For metrics and alerts, run a Prometheus with dashboards/prometheus.yml and the job with\n" +
			"  carillon run -n 4 --sd-file /run/carillon/hang.json -- bin/hang (see dashboards/README.md).\n")
	}
	if exported() {
		command("in Jaeger: which ranks are stalled, and why", r.jaegerCommand(job))
		command("the same on Jaeger's page, if it has one (that of make jaeger has none)",
			r.jaeger+"/search?lookback=1h&service=carillon&operation=ccl.stall&tags="+
				url.QueryEscape(jobTag(job)))
	} else {
		command("spans aren't exported; to see them, start a Jaeger, and then this program again with "+
			"OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318", "make jaeger")
	}
	command("all ranks side by side, from their tapes, now or after their death",
		carillonCommand()+" postmortem "+tapes)
	command(fmt.Sprintf("kill rank %d, which the others report at once", r.missing), fmt.Sprintf("kill -9 %d", missing))
	b.WriteString("\n")
	fmt.Print(b.String())
}

func (r *rank) showAfter() {
	_, tapes := whereabouts()
	fmt.Printf("\nrank %d has made its call, and the all-reduce is complete. The tapes stay:\n    %s postmortem %s\n",
		r.missing, carillonCommand(), tapes)
}

// jaegerCommand is a command that asks Jaeger for the stalls of a job, and picks the status of their spans.
func (r *rank) jaegerCommand(job string) string {
	return fmt.Sprintf("curl -sG %s/api/traces --data-urlencode service=carillon --data-urlencode operation=ccl.stall "+
		"--data-urlencode 'tags=%s' | grep -o '\"otel.status_description\",[^}]*'", r.jaeger, jobTag(job))
}

func jobTag(job string) string { return fmt.Sprintf(`{"ccl.job":"%s"}`, job) }

// whereabouts returns the job's name and the folder of its tapes.
func whereabouts() (job, tapes string) {
	w, err := rendezvous.FromEnv(os.Getenv)
	if err != nil {
		return "", tape.DefaultDir()
	}
	return w.Job, filepath.Join(tape.DefaultDir(), w.Job)
}

// carillonCommand is the path of the carillon command beside this program, or just its name.
func carillonCommand() string {
	beside := filepath.Join(filepath.Dir(os.Args[0]), "carillon")
	if _, err := exec.LookPath(beside); err == nil {
		return beside
	}
	return "carillon"
}
