package digits

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// drivers is a folder for the driver that jobs with -gpu use.
var drivers string

func TestMain(m *testing.M) {
	var err error
	if drivers, err = os.MkdirTemp("", "carillon-digits-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := e2e.Main(m)
	_ = os.RemoveAll(drivers)
	os.Exit(code)
}

// job starts the example on n ranks.
func job(t *testing.T, n int, env []string, flags []string, args ...string) *e2e.Job {
	t.Helper()
	all := append([]string{"run", "-n", strconv.Itoa(n)}, flags...)
	return e2e.Start(t, env, "carillon", append(append(all, "--", "digits"), args...)...)
}

// learned waits for the end of a job, and returns its accuracy in percent.
func learned(t *testing.T, j *e2e.Job) float64 {
	t.Helper()
	m := j.Await(`([\d.]+) % of \d+ digits never seen before are right`)
	if code := j.ExitCode(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	accuracy, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return accuracy
}

// weights reads the file that -weights wrote.
func weights(t *testing.T, path string) []float32 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w := make([]float32, len(b)/4)
	for i := range w {
		w[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return w
}

func TestSameWeightsWithAnyNumberOfRanks(t *testing.T) {
	var one []float32
	for _, tc := range []struct {
		n     int
		flags []string
	}{
		{1, nil},
		{2, nil},
		{3, nil},
		{4, []string{"--simulate-nodes", "2"}}, // over shared memory and TCP
		{7, []string{"--simulate-nodes", "3"}},
	} {
		t.Run(fmt.Sprint(tc.n), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "weights")
			if got := learned(t, job(t, tc.n, nil, tc.flags, "-weights", path)); got < 95 {
				t.Errorf("%.1f %% right, want at least 95", got)
			}
			w := weights(t, path)
			if one == nil {
				one = w
				return
			}
			worst := 0.0
			for i := range one {
				worst = max(worst, math.Abs(float64(w[i]-one[i])))
			}
			if len(w) != len(one) || !(worst <= 1e-5) {
				t.Errorf("%d weights, up to %g away from those of one rank; want %d, within 1e-5",
					len(w), worst, len(one))
			}
		})
	}
}

func TestKilledRankIsNamedByTheOthers(t *testing.T) {
	for name, flags := range map[string][]string{"one node": nil, "two nodes": {"--simulate-nodes", "2"}} {
		t.Run(name, func(t *testing.T) {
			// Far more epochs than the test waits for: the kill ends the job.
			j := job(t, 4, nil, append(flags, "-v", "--linger", "1h"), "-epochs", "1000000")
			pid := j.AwaitPID(`^carillon: rank 2: pid (\d+)`)
			j.Await(`^\[0\] epoch +3 of`)
			e2e.Kill(t, pid, syscall.SIGKILL)
			// The ranks must end on their own: the launcher would leave them alone for an hour.
			if code := j.ExitCode(); code != 128+9 {
				t.Errorf("exit code %d, want %d", code, 128+9)
			}
			for _, rank := range []int{0, 1, 3} {
				said := regexp.MustCompile(fmt.Sprintf(`(?m)^\[%d\] digits: .*rank 2.*`, rank)).FindString(j.Output())
				if !strings.Contains(said, `the process of rank 2 of "world" has ended`) {
					t.Errorf("rank %d does not say that rank 2 is dead: %q", rank, said)
				}
			}
		})
	}
}

// span is a span as the console exporter prints it.
type span struct {
	Name        string
	SpanContext struct{ TraceID, SpanID string }
	Parent      struct{ SpanID string }
	Links       []struct{ SpanContext struct{ TraceID string } }
	Attributes  []struct {
		Key   string
		Value struct{ Value any }
	}
	Status struct{ Code string }
}

func (s *span) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return fmt.Sprint(a.Value.Value)
		}
	}
	return ""
}

func TestEveryLifecycleActIsASpan(t *testing.T) {
	logs := t.TempDir()
	j := job(t, 4, []string{"OTEL_TRACES_EXPORTER=console"}, []string{"--tee", logs}, "-epochs", "2")
	if code := j.ExitCode(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	traces := map[string]map[string]string{} // communicator and act → rank → trace
	for rank := range 4 {
		for _, s := range spansOf(t, logs, rank) {
			if strings.Contains(s.Name, "(") || !strings.HasPrefix(s.Name, "ccl.comm.") || s.Parent.SpanID == "" &&
				s.attribute("ccl.rank") != "0" {
				continue
			}
			if s.Status.Code == "Error" {
				t.Errorf("rank %d: %s is an error", rank, s.Name)
			}
			if s.Name == "ccl.comm.destroy" && len(s.Links) == 0 {
				t.Errorf("rank %d: a destroy has no link to its init", rank)
			}
			act := s.attribute("ccl.comm.id") + " " + s.Name + " " + s.attribute("ccl.act.seq")
			if traces[act] == nil {
				traces[act] = map[string]string{}
			}
			traces[act][s.attribute("ccl.rank")] = s.SpanContext.TraceID
		}
	}
	names := map[string]int{}
	for act, byRank := range traces {
		first := ""
		for _, id := range byRank {
			if first == "" {
				first = id
			}
			if id != first {
				t.Errorf("%s: its ranks are in several traces: %v", act, byRank)
			}
		}
		names[strings.Fields(act)[1]]++
	}
	// The world, the nodes' communicators, and the rails: on a single node each rank is a rail of its own.
	want := map[string]int{"ccl.comm.init": 6, "ccl.comm.split": 2, "ccl.comm.destroy": 6}
	for name, n := range want {
		if names[name] != n {
			t.Errorf("%d acts %s, want %d; there are %v", names[name], name, n, names)
		}
	}
}

// spansOf returns the spans that a rank printed.
func spansOf(t *testing.T, dir string, rank int) []span {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("*%d*", rank)))
	if err != nil || len(files) == 0 {
		t.Fatalf("no log of rank %d: %v", rank, err)
	}
	var spans []span
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(string(b), "\n") {
			var s span
			if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &s) == nil && s.Name != "" {
				spans = append(spans, s)
			}
		}
	}
	return spans
}

func TestTapesTellWhatHappened(t *testing.T) {
	dir := t.TempDir()
	j := job(t, 4, nil, []string{"--simulate-nodes", "2", "--tape-dir", dir}, "-epochs", "2")
	if code := j.ExitCode(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	out, err := exec.Command("carillon", "comms", "--json", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Tapes         int
		Communicators []struct {
			Name  string
			Size  int
			Nodes int
			Ranks []struct{ State string }
			Acts  []struct {
				Act     string
				TraceID string `json:"trace_id"`
				Ranks   int
				Errors  []struct{ Text string }
			}
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	if report.Tapes != 4 || len(report.Communicators) != 5 {
		t.Fatalf("%d tapes, %d communicators; want 4 and 5 (the world, two rails, two nodes)", report.Tapes,
			len(report.Communicators))
	}
	for _, c := range report.Communicators {
		size := 2
		if c.Name == "world" {
			size = 4
		}
		if c.Size != size || len(c.Ranks) != size {
			t.Errorf("%s has %d ranks, of which %d left a tape", c.Name, c.Size, len(c.Ranks))
		}
		for _, r := range c.Ranks {
			if r.State != "destroyed" {
				t.Errorf("a rank of %s is %s at the end", c.Name, r.State)
			}
		}
		for _, a := range c.Acts {
			if len(a.Errors) > 0 || len(a.TraceID) != 32 || a.Ranks != size {
				t.Errorf("%s of %s: trace %q, %d ranks, errors %v", a.Act, c.Name, a.TraceID, a.Ranks, a.Errors)
			}
		}
	}
}

func TestHealthWhileItTrains(t *testing.T) {
	// An answer is as old as the last snapshot, so the test asks until the answer is there.
	j := job(t, 2, []string{"CARILLON_RAS_MIN_POLL_INTERVAL=off"}, nil, "-epochs", "1000000")
	url := strings.TrimSuffix(j.Await(`health of rank 0: (http://\S+)`)[1], "/")
	j.Await(`^\[0\] epoch +2 of`)
	for path, says := range map[string]string{
		"/livez": "ok", "/readyz": "ok", "/metrics": "ccl_",
		"/api/v1/comms": "rails",
	} {
		awaitAnswer(t, url+path, says)
	}
	j.Signal(syscall.SIGTERM)
	if code := j.ExitCode(); code == 0 {
		t.Error("exit code 0 after SIGTERM")
	}
}

// awaitAnswer asks until the answer contains the text, for ten seconds.
func awaitAnswer(t *testing.T, url, says string) {
	t.Helper()
	again, late := time.NewTicker(100*time.Millisecond), time.After(10*time.Second)
	defer again.Stop()
	for {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK && strings.Contains(string(body), says) {
			return
		}
		select {
		case <-again.C:
		case <-late:
			t.Errorf("%s: %d, %v, %.200q does not say %q", url, resp.StatusCode, err, body, says)
			return
		}
	}
}

func TestBadEnvironmentIsNamed(t *testing.T) {
	j := e2e.Start(t, []string{
		"RANK=7", "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=0",
		"CARILLON_TAPE=maybe",
	}, "digits")
	if code := j.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, part := range []string{"RANK", "7", "MASTER_PORT", "CARILLON_TAPE", "maybe"} {
		if !strings.Contains(j.Output(), part) {
			t.Errorf("the error does not name %q", part)
		}
	}
}
