package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/tests/e2e"
)

const (
	startTime = 2 * time.Minute  // at most, until all ranks have made a step
	endTime   = time.Minute      // at most, until all have ended
	aftermath = 10 * time.Second // time for reports that follow from the first one
)

// soak is a job that runs beside busy processes.
type soak struct {
	t       *testing.T
	crowd   *crowd
	job     *e2e.Job
	pids    []int
	urls    []string
	heard   *listeners
	tick    time.Duration
	began   time.Time
	steps   []int // of each rank, at the last look
	suspect int   // how many were suspected, over all looks
}

// TestSilence: nothing is reported about a healthy job, however long its processes wait for a core.
func TestSilence(t *testing.T) {
	s := start(t, *lasts)
	if err := s.watch(*lasts); err != nil {
		t.Error(err)
		return // the end of the test ends the ranks
	}
	s.end()
}

// TestHearsAStop: if a rank is stopped, the test notices.
func TestHearsAStop(t *testing.T) {
	s := start(t, time.Minute)
	e2e.Kill(t, s.pids[1], syscall.SIGSTOP)
	err := s.watch(time.Minute)
	e2e.Kill(t, s.pids[1], syscall.SIGCONT)
	if err == nil || !strings.Contains(err.Error(), "rank.stopped: rank 1 ") {
		t.Errorf("a stopped rank was told as %v", err)
	}
	t.Log(err)
}

// start starts the busy processes, and the job among them, and waits until the job works.
func start(t *testing.T, lasts time.Duration) *soak {
	t.Helper()
	s := &soak{
		t: t, heard: newListeners(), tick: min(time.Minute, max(lasts/3, time.Second)), steps: make([]int, *ranks),
	}
	var err error
	s.crowd, err = gather(*perCore * runtime.NumCPU())
	t.Cleanup(func() { _, _ = s.crowd.dismiss() }) // in case nobody else does
	if err != nil {
		t.Fatal(err)
	}
	s.job = e2e.StartFor(t, startTime+lasts+aftermath+endTime, []string{
		roleVariable + "=" + roleRank, reportVariable + "=" + (s.tick / 4).String(),
		"CARILLON_RAS_MIN_POLL_INTERVAL=off", "CARILLON_HEALTH_TOKEN=", "CARILLON_HEALTH_ADDR=",
	}, "carillon", "run", "-n", strconv.Itoa(*ranks), "--simulate-nodes", strconv.Itoa(min(*ranks,
		2)), "--job", "soak", "--tape-dir", t.TempDir(),
		"--", os.Args[0])
	for rank := range *ranks {
		m := s.job.Await(fmt.Sprintf(`^\[%d\] ready (\d+) (http://\S+?)/?$`, rank))
		pid, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		s.pids, s.urls = append(s.pids, pid), append(s.urls, m[2])
	}
	s.began = time.Now()
	s.heard.listen(s.urls)
	t.Cleanup(s.heard.close)
	return s
}

// watch observes the job for a while. The error has the events and everything else that was wrong.
func (s *soak) watch(lasts time.Duration) error {
	over, tick := time.NewTimer(lasts), time.NewTicker(s.tick)
	looked := time.Now()
	defer over.Stop()
	defer tick.Stop()
	for {
		select {
		case first := <-s.heard.wrong:
			return s.wrong(first)
		case <-over.C:
			if time.Since(looked) < s.tick/2 { // too soon for all ranks to have made another step
				return nil
			}
			return s.look()
		case <-tick.C:
			if err := s.look(); err != nil {
				return err
			}
			looked = time.Now()
		}
	}
}

// wrong collects what is reported within a while, as the first report is rarely the only one.
func (s *soak) wrong(first string) error {
	errs := []error{
		fmt.Errorf("after %v, with a load average of %s", time.Since(s.began).Round(time.Millisecond), load()),
		errors.New(first),
	}
	more := time.NewTimer(aftermath)
	defer more.Stop()
	for {
		select {
		case text := <-s.heard.wrong:
			errs = append(errs, errors.New(text))
		case <-more.C:
			return errors.Join(errs...)
		}
	}
}

// look checks the job. It returns an error if a rank has made no step since the last look, or isn't there.
func (s *soak) look() error {
	done := s.done()
	line := fmt.Sprintf("soak: %v: %d steps, load average %s, longest pause %v", time.Since(s.began).Round(time.Second),
		done[0].steps, load(), longest(done))
	for rank, d := range done {
		if d.steps <= s.steps[rank] {
			return fmt.Errorf("rank %d has made %d steps, and none for %v", rank, d.steps, s.tick)
		}
		s.steps[rank] = d.steps
	}
	suspects, err := s.members()
	if err != nil {
		return err
	}
	if s.suspect += suspects; suspects > 0 {
		line += fmt.Sprintf(", %d suspects", suspects)
	}
	fmt.Println(line)
	return nil
}

// members asks a rank for the members that it knows. It returns an error if their number is wrong, or if one is neither
// alive nor suspected.
func (s *soak) members() (suspects int, err error) {
	resp, err := http.Get(s.urls[0] + "/api/v1/ranks")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var answer struct{ Ranks []health.Rank }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return 0, fmt.Errorf("%s: %s: %w", resp.Request.URL, resp.Status, err)
	}
	for i := range answer.Ranks {
		switch r := &answer.Ranks[i]; r.State {
		case "alive":
		case "suspect":
			suspects++
		default:
			return suspects, fmt.Errorf("rank %d is %s: %s", r.Rank, r.State, r.Text)
		}
	}
	if len(answer.Ranks) != *ranks {
		return suspects, fmt.Errorf("rank 0 knows %d members, want %d", len(answer.Ranks), *ranks)
	}
	return suspects, nil
}

// end ends the job, and logs its statistics.
func (s *soak) end() {
	s.t.Helper()
	took := time.Since(s.began)
	average := load()
	s.heard.ending.Store(true)
	s.job.Signal(syscall.SIGUSR2)
	if code := s.job.ExitCode(); code != 0 {
		s.t.Fatalf("the job's exit code is %d, want 0", code)
	}
	s.heard.wait()
	select {
	case first := <-s.heard.wrong:
		s.t.Fatalf("in the end: %v", s.wrong(first))
	default:
	}
	share, err := s.crowd.dismiss()
	if err != nil {
		s.t.Fatal(err)
	}
	// With so many processes of one priority, and ranks beside them, none gets more; a little more may be due to the
	// way of counting.
	if most := 1.1 / float64(*perCore); share > most {
		s.t.Errorf("each busy process got %.2f of a core, want at most %.2f: the cores were not as busy as "+
			"they should be",
			share, most)
	}
	done := s.done()
	fmt.Printf("soak: nothing was told in %v: %d ranks, as many members, %d steps; beside %d busy processes on %d "+
		"cores, each with %.2f of one, "+
		"load average %s; longest pause of a rank %v; suspects seen at %v intervals: %d; streams resumed: %d\n",
		took.Round(time.Second), *ranks, done[0].steps, *perCore*runtime.NumCPU(), runtime.NumCPU(), share, average,
		longest(done),
		s.tick, s.suspect, s.heard.resumed.Load())
}

// progress is a rank's last report.
type progress struct {
	steps int
	pause time.Duration
}

var said = regexp.MustCompile(`(?m)^\[(\d+)\] steps (\d+) paused (\S+)$`)

// done returns the last report of each rank.
func (s *soak) done() []progress {
	all := make([]progress, *ranks)
	for _, m := range said.FindAllStringSubmatch(s.job.Output(), -1) {
		rank, _ := strconv.Atoi(m[1]) // the expression has digits
		steps, _ := strconv.Atoi(m[2])
		pause, _ := time.ParseDuration(m[3])
		all[rank] = progress{steps, pause}
	}
	return all
}

func longest(all []progress) time.Duration {
	var most time.Duration
	for _, p := range all {
		most = max(most, p.pause)
	}
	return most.Round(time.Millisecond)
}

// load is the load average of the last minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
