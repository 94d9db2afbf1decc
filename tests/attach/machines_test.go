package attach

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// machine is a network and a UTS namespace.
type machine struct {
	name  string
	tapes string
	enter []string // begins a command that runs there
}

// machines makes two machines with a cable between them, which exist until the test ends.
func machines(t *testing.T) (two [2]machine) {
	t.Helper()
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	var pids [2]string
	for i := range two {
		name := fmt.Sprintf("machine%d", i)
		holder := e2e.Start(t, nil, "unshare", "--net", "--uts", "sh", "-c",
			`echo "$0" >/proc/sys/kernel/hostname && echo named $$ && exec sleep infinity`, name)
		pids[i] = fmt.Sprint(holder.AwaitPID(`^named (\d+)$`))
		two[i] = machine{name, t.TempDir(), []string{"nsenter", "--net", "--uts", "--target", pids[i], "--"}}
	}
	run("ip", "link", "add", "eth0", "netns", pids[0], "type", "veth", "peer", "name", "eth0", "netns", pids[1])
	for i, m := range two {
		run(append(m.enter, "ip", "link", "set", "lo", "up")...)
		run(append(m.enter, "ip", "address", "add", fmt.Sprintf("10.214.0.%d/24", i+1), "dev", "eth0")...)
		run(append(m.enter, "ip", "link", "set", "eth0", "up")...)
	}
	return two
}

// start starts a command on the machine.
func (m *machine) start(t *testing.T, env []string, args ...string) *e2e.Job {
	t.Helper()
	args = slices.Concat(m.enter, args)
	return e2e.Start(t, env, args[0], args[1:]...)
}

// said is an agent's report on its job.
type said struct {
	Ranks []struct {
		Rank              int
		State, Text, Host string
	}
	Verdicts []struct {
		ID, Reason string
		Culprits   []struct{ Rank int }
		Text       string
	}
}

// states returns the states of the ranks, in order.
func (s *said) states() string {
	var all [4]string
	for _, r := range s.Ranks {
		if r.Rank >= 0 && r.Rank < len(all) {
			all[r.Rank] = r.State
		}
	}
	return strings.Join(all[:], " ")
}

// patience is a bound for the time that an agent needs to find something out.
const patience = 60 * time.Second

// await waits until the report of the machine's agent, as shown by carillon status, satisfies is.
func (m *machine) await(t *testing.T, is func(*said) bool) (s said) {
	t.Helper()
	for began := time.Now(); ; { // snapshots are some moments old; the timeout of go test bounds the loop
		status := m.start(t, nil, "carillon", "status", "--json", m.tapes)
		status.ExitCode()
		if s = (said{}); json.Unmarshal([]byte(status.Output()), &s) == nil && is(&s) {
			return s
		}
		if time.Since(began) > patience {
			t.Fatalf("of %s it is said: %s", m.name, status.Output())
		}
	}
}

// agent starts the machine's agent.
func (m *machine) agent(t *testing.T, env []string, args ...string) *e2e.Job {
	t.Helper()
	return m.start(t, append([]string{
		"CARILLON_STALL_THRESHOLD=500ms", "CARILLON_HEALTH_TOKEN=", "CARILLON_HEALTH_ADDR=",
		"CARILLON_RAS_MIN_POLL_INTERVAL=off",
	}, env...), append([]string{"carillon", "agent", "--tape-dir", m.tapes}, args...)...)
}

// heldUpOnTwo starts a job with two ranks on each machine, and returns their pids once rank 2 holds the others up.
func heldUpOnTwo(t *testing.T, two *[2]machine, env ...string) (pids [4]int) {
	t.Helper()
	var ranks [4]*e2e.Job
	for r := range ranks {
		m := &two[r/2]
		ranks[r] = m.start(t, slices.Concat(none, []string{
			roleVariable + "=" + stays, "CARILLON_TAPE_DIR=" + m.tapes, "CARILLON_JOB=held-up",
			fmt.Sprintf("RANK=%d", r), "WORLD_SIZE=4", fmt.Sprintf("LOCAL_RANK=%d", r%2), "LOCAL_WORLD_SIZE=2",
			"MASTER_ADDR=10.214.0.1", "MASTER_PORT=29500",
		}, env), os.Args[0])
	}
	for r, job := range ranks {
		pids[r] = job.AwaitPID(`^ready (\d+)$`)
	}
	return pids
}

// agree waits until the agents of both machines have the same verdict, on rank 2.
func agree(t *testing.T, two *[2]machine, reason string, pid int) {
	t.Helper()
	var ids [2]string
	for i := range two {
		s := two[i].await(t, func(s *said) bool {
			return len(s.Verdicts) == 1 && s.Verdicts[0].Reason == reason &&
				strings.Contains(s.Verdicts[0].Text, fmt.Sprintf("rank 2 (machine1, pid %d)", pid))
		})
		ids[i] = s.Verdicts[0].ID
	}
	if ids[0] != ids[1] {
		t.Errorf("the agents say %s by two verdicts: %q", reason, ids)
	}
}

// TestAgentsBesidePods: as under Kubernetes, the agents have the addresses of the machines, and rank 0 has an address
// of its own, on which no agent listens. The agents find each other on the machines of --join, with the secret in the
// environment of the ranks.
func TestAgentsBesidePods(t *testing.T) {
	t.Parallel()
	two := machines(t)
	const pod = "10.214.0.77/24" // rank 0's, on the first machine
	if code := two[0].start(t, nil, "ip", "address", "add", pod, "dev", "eth0").ExitCode(); code != 0 {
		t.Fatalf("ip address add: exit code %d", code)
	}
	for i := range two {
		two[i].agent(t, []string{fmt.Sprintf("CARILLON_RAS_ADDR=10.214.0.%d:28029", i+1)},
			"--join", "10.214.0.1,10.214.0.2")
	}
	pids := heldUpOnTwo(t, &two, "MASTER_ADDR=10.214.0.77", "CARILLON_JOB_SECRET="+strings.Repeat("s3cret", 6))
	agree(t, &two, "not_entered", pids[2])
}

// TestAgentsOfTwoMachines: the agents of a job's machines find each other by what the launcher told the ranks, reach
// one verdict, and both report it, whichever machine the culprit is on. When an agent ends, the other one says what it
// can't see any more, and declares no rank dead; when a new agent starts, they connect again. When the job's ranks on
// one machine have ended, its agent stops reporting what is open on the other.
func TestAgentsOfTwoMachines(t *testing.T) {
	t.Parallel()
	two := machines(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("s3cret", 6)), 0o600); err != nil {
		t.Fatal(err)
	}
	begin := func(m *machine) *e2e.Job { return m.agent(t, []string{"CARILLON_JOB_SECRET_FILE=" + secret}) }
	begin(&two[0])
	second := begin(&two[1])
	pids := heldUpOnTwo(t, &two, "CARILLON_JOB_SECRET_FILE="+secret)
	agree(t, &two, "not_entered", pids[2])
	e2e.Kill(t, pids[2], syscall.SIGKILL)
	agree(t, &two, "rank_dead", pids[2])

	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		second.Signal(sig)
		second.ExitCode()
		s := two[0].await(t, func(s *said) bool { return s.states() == "alive alive dead unreachable" })
		for _, r := range s.Ranks {
			if r.Rank == 3 && !strings.Contains(r.Text, "agent") {
				t.Errorf("of rank 3 it is said: %q", r.Text)
			}
		}
		second = begin(&two[1])
		two[0].await(t, func(s *said) bool { return s.states() == "alive alive dead alive" })
	}
	url := second.Await(`agent: a page for each process is at (http://\S+)/`)[1]
	watch := two[1].start(t, nil, "carillon", "watch", "--url", url)
	watch.Await(`verdict\.opened: rank 2 .*\(reason rank_dead\)`)
	e2e.Kill(t, pids[3], syscall.SIGKILL)
	watch.Await(`verdict\.withdrawn: .*rank_dead`)
	two[0].await(t, func(s *said) bool { return len(s.Verdicts) == 1 && s.Verdicts[0].Reason == "rank_dead" })
}
