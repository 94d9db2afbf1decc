package polling

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/tests/e2e"
)

const ranks = 8

var (
	pairs  = flag.Int("pairs", 3, "how often the ranks are asked, and beside it the unrelated servers")
	window = flag.Duration("window", 2*time.Second, "for how long each time")
)

// TestPolling queries the ranks of a job a thousand times a second, and then also sends garbage to their ports.
func TestPolling(t *testing.T) {
	j := startJob(t)
	l := newLoad()
	unrelated := startBystanders(t, shapes(t, j.targets[0]))
	quiet := j.rate(2 * *window)
	asked, beside := make([]float64, 0, *pairs), make([]float64, 0, *pairs)
	rest := &load{clients: l.clients, statuses: map[string]int{}} // its answers don't come from the ranks
	var queries, others int
	for i := range *pairs {
		for turn := range 2 {
			if (i+turn)%2 == 0 { // alternating, so that a drift affects both
				rate, count := j.rateUnder(l, j.targets, true)
				asked, queries = append(asked, rate), queries+count
			} else {
				rate, count := j.rateUnder(rest, unrelated, false)
				beside, others = append(beside, rate), others+count
			}
		}
		t.Logf("pair %d: %.0f rounds/s while the ranks are asked, %.0f beside the unrelated servers: %.3f",
			i+1, asked[i], beside[i], asked[i]/beside[i])
	}
	seconds := float64(*pairs) * window.Seconds()
	t.Logf("%d clients, %d pairs of %v: %.0f queries/s to the ranks, %.0f to the unrelated servers", clientCount,
		*pairs, *window,
		float64(queries)/seconds, float64(others)/seconds)
	t.Logf("the ranks answered: %v", l)
	t.Logf("rounds/s: %.0f asked, %.0f unrelated, %.0f in quiet (medians); asked/unrelated %s; unrelated/unrelated %s",
		median(asked), median(beside), quiet, spread(ratios(asked, beside)), spread(successive(beside)))
	j.wellTreated(l)
	j.limits()

	before := j.refused()
	clear(l.statuses)
	attacked, toRanks := j.rateAbused(l, j.targets, slices.Concat(j.addresses(), j.meshes()), true)
	strangers := hosts(t, unrelated)
	spared, toOthers := j.rateAbused(rest, unrelated, slices.Concat(strangers, strangers), false)
	t.Logf("with abuse: %.0f rounds/s, %.0f beside the unrelated servers: %.3f", attacked, spared, attacked/spared)
	t.Logf("what was done to the ranks: %v; to the unrelated servers: %v", toRanks, toOthers)
	t.Logf("the ranks answered: %v", l)
	if len(rest.errs) > 0 {
		t.Errorf("the unrelated servers: %v", rest.errs)
	}
	allDone(t, toRanks)
	for i, after := range j.refused() {
		if after <= before[i] {
			t.Errorf("rank %d: the mesh has refused nothing of it", i)
		}
	}
	j.wellTreated(l)
	j.isWell()
	j.run.Signal(syscall.SIGTERM)
	if code := j.run.ExitCode(); code != 0 {
		t.Errorf("the job ended with %d", code)
	}
}

// job is the job under test.
type job struct {
	t       *testing.T
	run     *e2e.Job
	tapes   string
	pid     int // of rank 0
	targets []string
	marks   int
	fresh   int // how many clients have made a single query
}

const jobName = "polling"

func startJob(t *testing.T) *job {
	t.Helper()
	program := self(t)
	j := &job{t: t, tapes: t.TempDir(), targets: make([]string, ranks)}
	j.run = e2e.Start(t, []string{roleVariable + "=" + roleRank}, "carillon", "run", "-n", strconv.Itoa(ranks),
		"--job", jobName,
		"--tape-dir", j.tapes, "--", program)
	for rank := range ranks {
		m := j.run.Await(fmt.Sprintf(`^\[%d\] at work (\d+) (\S+)$`, rank))
		j.targets[rank] = m[2]
		if rank == 0 {
			j.pid = number(t, m[1])
		}
	}
	return j
}

func self(t *testing.T) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// mark returns how many rounds the job has made, and when.
func (j *job) mark() (rounds int, at time.Time) {
	j.t.Helper()
	j.marks++
	e2e.Kill(j.t, j.pid, syscall.SIGUSR1)
	j.run.Await(fmt.Sprintf(`(?s)(^\[0\] mark .*?){%d}`, j.marks))
	all := regexp.MustCompile(`(?m)^\[0\] mark (\d+) (\d+)$`).FindAllStringSubmatch(j.run.Output(), -1)
	last := all[len(all)-1]
	return number(j.t, last[1]), time.Unix(0, int64(number(j.t, last[2])))
}

// rate is the number of rounds that the job makes per second, measured over some time.
func (j *job) rate(over time.Duration) float64 {
	j.t.Helper()
	before, began := j.mark()
	timer := time.NewTimer(over)
	<-timer.C
	after, ended := j.mark()
	if after <= before {
		j.t.Fatalf("no round in %v", over)
	}
	return float64(after-before) / ended.Sub(began).Seconds()
}

// rateUnder is the rate while the clients make queries, and the number of their queries.
func (j *job) rateUnder(l *load, targets []string, check bool) (rate float64, queries int) {
	j.t.Helper()
	stop := l.start(targets, check)
	defer stop()
	before := l.count()
	rate = j.rate(*window)
	return rate, l.count() - before
}

// abused is the duration of the abuse: longer than an interval, and than the time that a server gives a slow client.
const abused = interval + 7*time.Second

// rateAbused is the rate while the clients make queries and addresses are abused, with the counts of the abuse.
func (j *job) rateAbused(l *load, targets, addresses []string, check bool) (float64, map[string]int64) {
	j.t.Helper()
	stop := abuse(addresses)
	rest := l.start(targets, check)
	rate := j.rate(abused)
	rest()
	return rate, stop()
}

// wellTreated fails the test if a query got a wrong answer, or if some kind of answer never came.
func (j *job) wellTreated(l *load) {
	j.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, err := range l.errs {
		j.t.Error(err)
	}
	for _, what := range []string{"documents 200", "probes 200", "metrics 200"} {
		if l.statuses[what] == 0 {
			j.t.Errorf("there was no answer %q", what)
		}
	}
}

// limits queries a document without a pause until a query is refused. On a slow machine no other client asks often
// enough.
func (j *job) limits() {
	j.t.Helper()
	c := newClient(clientCount)
	for status := 0; status != http.StatusTooManyRequests; {
		var err error
		if status, err = c.ask(j.t.Context(), j.targets[0], documents[0]); err != nil {
			j.t.Fatal(err)
		}
	}
}

// get queries a rank as a client that has not asked before.
func (j *job) get(rank int, path string) []byte {
	j.t.Helper()
	j.fresh++
	answer, body, _, err := newClient(clientCount+j.fresh).get(context.Background(), j.targets[rank]+path[1:], "")
	if err != nil || answer.StatusCode != http.StatusOK {
		j.t.Fatalf("rank %d, %s: %v, %v", rank, path, answer, err)
	}
	return body
}

// isWell asks each rank whether all ranks are alive and nothing is wrong.
func (j *job) isWell() {
	j.t.Helper()
	for rank := range ranks {
		body := j.get(rank, "/api/v1/ras")
		var d document
		if err := json.Unmarshal(body, &d); err != nil {
			j.t.Fatal(err)
		}
		missing := slices.ContainsFunc(d.Ranks, func(r struct{ State string }) bool { return r.State != "alive" })
		if len(d.Ranks) != ranks || missing || len(d.Verdicts) > 0 {
			j.t.Errorf("rank %d says of a job that is well:\n%s", rank, body)
		}
	}
}

// refused returns how many packets each rank's mesh has refused so far.
func (j *job) refused() []float64 {
	j.t.Helper()
	sums := make([]float64, ranks)
	line := regexp.MustCompile(`(?m)^` + semconv.MetricRASPacketsRefused + `\{.*\} (\S+)$`)
	for rank := range sums {
		for _, m := range line.FindAllStringSubmatch(string(j.get(rank, metricsPath)), -1) {
			value, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				j.t.Fatal(err)
			}
			sums[rank] += value
		}
	}
	return sums
}

// addresses are the listen addresses of the health endpoints, and meshes those of the meshes.
func (j *job) addresses() []string {
	j.t.Helper()
	return hosts(j.t, j.targets)
}

func hosts(t *testing.T, targets []string) []string {
	t.Helper()
	all := make([]string, len(targets))
	for i, target := range targets {
		u, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = u.Host
	}
	return all
}

func (j *job) meshes() []string {
	j.t.Helper()
	files, err := filepath.Glob(filepath.Join(j.tapes, jobName, "*.ras"))
	if err != nil || len(files) != ranks {
		j.t.Fatalf("the tapes have %d files that say where a mesh listens, want %d, %v", len(files), ranks, err)
	}
	all := make([]string, ranks)
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			j.t.Fatal(err)
		}
		all[i] = strings.TrimSpace(string(text))
		if _, _, err := net.SplitHostPort(all[i]); err != nil {
			j.t.Fatal(err)
		}
	}
	return all
}

// shapes are the unrelated servers' answers: as large as a rank's.
func shapes(t *testing.T, target string) map[string]shape {
	t.Helper()
	c := newClient(clientCount)
	all := map[string]shape{}
	for _, path := range slices.Concat(documents, probes, []string{metricsPath}) {
		_, body, _, err := c.get(context.Background(), target+path[1:], "")
		if err != nil {
			t.Fatal(err)
		}
		every := 1
		if kind(path) == "documents" {
			every = 8 // one in five seconds, at a client's rate
		}
		all[path] = shape{Bytes: len(body), Every: every}
	}
	return all
}

func startBystanders(t *testing.T, answers map[string]shape) (targets []string) {
	t.Helper()
	text, err := json.Marshal(answers)
	if err != nil {
		t.Fatal(err)
	}
	for range ranks {
		run := e2e.Start(t, []string{roleVariable + "=" + roleBystander, answersVariable + "=" + string(text)}, self(t))
		targets = append(targets, run.Await(`^listens (.*)$`)[1])
	}
	return targets
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[n/2] + sorted[(n-1)/2]) / 2
}

func ratios(a, b []float64) []float64 {
	r := make([]float64, len(a))
	for i := range a {
		r[i] = a[i] / b[i]
	}
	return r
}

// successive returns the ratios of consecutive windows of one kind.
func successive(values []float64) []float64 {
	r := make([]float64, 0, len(values))
	for i := range values[1:] {
		r = append(r, values[i+1]/values[i])
	}
	return r
}

// spread returns the median and the range.
func spread(values []float64) string {
	if len(values) == 0 {
		return "(too few)"
	}
	return fmt.Sprintf("%.3f (%.3f to %.3f)", median(values), slices.Min(values), slices.Max(values))
}
