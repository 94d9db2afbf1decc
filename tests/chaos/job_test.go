package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/tests/e2e"
)

const ranks, perHost = 4, 2

// job is a job on the two hosts of a network.
type job struct {
	*lab
	t    *testing.T
	name string
	net  *network
	runs [2]*e2e.Job // a carillon run on each host
	pids [ranks]int
	mark struct{ events, alerts int } // how many of the receiver's events and alerts belong to earlier steps
	also func(*told) bool             // whether an event may be reported beside the expected ones; nil: none may
}

// start starts a job, and waits until all ranks have made a step.
func (l *lab) start(t *testing.T, n *network, name, fault string, env ...string) *job {
	t.Helper()
	j := &job{lab: l, t: t, name: name, net: n}
	n.jobs++
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range n.hosts {
		env := append([]string{
			"CARILLON_JOB_SECRET=known to this job alone", "CARILLON_HOSTID=" + h.name, "CARILLON_RAS_WEBHOOK_SECRET=" +
				webhookSecret,
			"CARILLON_RAS_WEBHOOKS=" + n.contact(l.receiver.port) + "/events", "CARILLON_RAS_ALERTMANAGERS=" +
				n.contact(l.alerts.port),
			"CARILLON_STALL_THRESHOLD=2s", "CARILLON_SLOW_THRESHOLD=1s", faultVariable + "=" + fault,
		}, env...)
		run := h.enter("carillon", "run", "-n", strconv.Itoa(perHost), "--nnodes", strconv.Itoa(len(n.hosts)),
			"--node-rank", strconv.Itoa(i),
			"--master-addr", n.hosts[0].addr, "--master-port", strconv.Itoa(20000+n.jobs), "--job", name, "--tape-dir",
			h.tapes, "--", program)
		j.runs[i] = e2e.Start(t, env, run[0], run[1:]...)
	}
	for rank := range j.pids {
		j.pids[rank] = j.run(rank).AwaitPID(fmt.Sprintf(`^\[%d\] ready (\d+)`, rank))
	}
	return j
}

// run is the launcher of a rank.
func (j *job) run(rank int) *e2e.Job { return j.runs[rank/perHost] }

// steps is how many steps the job has made, by its last report.
func (j *job) steps() int {
	lines := regexp.MustCompile(`(?m)^\[0\] steps (\d+)$`).FindAllStringSubmatch(j.runs[0].Output(), -1)
	if len(lines) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(lines[len(lines)-1][1]) // the expression has digits
	return n
}

// moves waits until the job has made so many more steps.
func (j *job) moves(steps int) {
	j.t.Helper()
	const report = 5
	j.runs[0].Await(fmt.Sprintf(`^\[0\] steps %d$`, (j.steps()+steps+report-1)/report*report))
}

// errs makes the rank do the wrong thing, and returns when that began.
func (j *job) errs(rank int) time.Time {
	j.t.Helper()
	before := j.faults(rank)
	e2e.Kill(j.t, j.pids[rank], syscall.SIGUSR1)
	j.run(rank).Await(fmt.Sprintf(`(?s)(\[%d\] fault \d+\n.*){%d}`, rank, len(before)+1))
	all := j.faults(rank)
	ns, err := strconv.ParseInt(all[len(all)-1][1], 10, 64)
	if err != nil {
		j.t.Fatal(err)
	}
	return time.Unix(0, ns)
}

func (j *job) faults(rank int) [][]string {
	return regexp.MustCompile(fmt.Sprintf(`(?m)^\[%d\] fault (\d+)$`, rank)).FindAllStringSubmatch(j.run(rank).Output(),
		-1)
}

// end ends the job.
func (j *job) end() {
	j.t.Helper()
	for _, run := range j.runs {
		run.Signal(syscall.SIGTERM)
	}
	j.ended()
}

// ended waits for the job to end, and removes its tapes.
func (j *job) ended() {
	j.t.Helper()
	for _, run := range j.runs {
		run.ExitCode()
	}
	for _, h := range j.net.hosts {
		if err := os.RemoveAll(filepath.Join(h.tapes, j.name)); err != nil {
			j.t.Fatal(err)
		}
	}
}
