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

// exported tells whether spans go to a collector, as the runtime decides it.
func exported() bool {
	own, all := otlp.Asked("TRACES")
	to := os.Getenv("OTEL_TRACES_EXPORTER")
	return (own || all) && (to == "" || to == "otlp")
}

// show says what will happen, and prints the commands that show it. Each is a line that can be copied to a shell.
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
		command("who holds the job up, live (q ends it; without --for it lasts as long as the job)",
			carillonCommand()+" watch --for 20s "+tapes)
		command("what rank 0 is in, since when, and for whom it waits", "curl -s "+health+"/api/v1/comms")
		command("its health", "curl -s '"+health+"/healthz?verbose'")
		command("its metrics: what is in flight, and what stalls (CARILLON_STALL_THRESHOLD says from when on)",
			"curl -s "+health+"/metrics | grep -E '^ccl_(operations_in_flight|operation_oldest|stalled|stall_age)'")
		b.WriteString("\n  In Prometheus, with the alerts that fire: run one with dashboards/prometheus.yml, " +
			"which finds the ranks of a job that is started by\n" +
			"  carillon run -n 4 --sd-file /run/carillon/hang.json -- bin/hang (dashboards/README.md has more).\n")
	}
	if exported() {
		command("in Jaeger: who stalls, and why, as each rank tells it", r.jaegerCommand(job))
		command("the same on Jaeger's page, if it has one (what make jaeger starts has none)",
			r.jaeger+"/search?lookback=1h&service=carillon&operation=ccl.stall&tags="+
				url.QueryEscape(jobTag(job)))
	} else {
		command("no spans leave the process; start a Jaeger, and then this program again, with "+
			"OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318", "make jaeger")
	}
	command("all ranks side by side, from their tapes, now or when they are dead",
		carillonCommand()+" postmortem "+tapes)
	command(fmt.Sprintf("rank %d dies, and the others say so at once", r.missing), fmt.Sprintf("kill -9 %d", missing))
	b.WriteString("\n")
	fmt.Print(b.String())
}

func (r *rank) showAfter() {
	_, tapes := whereabouts()
	fmt.Printf("\nrank %d has made its call, and the all-reduce is complete. The tapes stay:\n    %s postmortem %s\n",
		r.missing, carillonCommand(), tapes)
}

// jaegerCommand asks Jaeger for the stalls of a job, and picks what their spans' status says.
func (r *rank) jaegerCommand(job string) string {
	return fmt.Sprintf("curl -sG %s/api/traces --data-urlencode service=carillon --data-urlencode operation=ccl.stall "+
		"--data-urlencode 'tags=%s' | grep -o '\"otel.status_description\",[^}]*'", r.jaeger, jobTag(job))
}

func jobTag(job string) string { return fmt.Sprintf(`{"ccl.job":"%s"}`, job) }

// whereabouts is the job's name, and the folder that its tapes are in.
func whereabouts() (job, tapes string) {
	w, err := rendezvous.FromEnv(os.Getenv)
	if err != nil {
		return "", tape.DefaultDir()
	}
	return w.Job, filepath.Join(tape.DefaultDir(), w.Job)
}

// carillonCommand is how to call carillon: the one beside this program, or by name.
func carillonCommand() string {
	beside := filepath.Join(filepath.Dir(os.Args[0]), "carillon")
	if _, err := exec.LookPath(beside); err == nil {
		return beside
	}
	return "carillon"
}
