package jaeger

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// soon makes hangs be announced and reported early, and reported again while a test waits.
var soon = []string{"CARILLON_SLOW_THRESHOLD=200ms", "CARILLON_STALL_THRESHOLD=500ms"}

// TestHang looks at an all-reduce while one rank has not made the call, and after it has.
func TestHang(t *testing.T) {
	j := Start(t)
	const job = "hang"
	began := time.Now()
	run, pids := startRole(t, "late", job, "(?:is late|makes the call)$", append(j.Env("http/protobuf"), soon...),
		"--tape-dir", t.TempDir())

	// While it hangs, each rank that is in the call has announced it, and repeatedly reports that it waits.
	started := byRankBut(t, one(t, await(j, job, "ccl.all_reduce (started)", 3)), "ccl.all_reduce (started)")
	found := j.Await(Query{Operation: "ccl.stall", Tags: map[string]string{"ccl.job": job, "error": "true"}},
		func(traces []Trace) error {
			if got := spans(traces, "ccl.stall"); got < 3*2 {
				return fmt.Errorf("%d spans ccl.stall, want two from each of three ranks", got)
			}
			return nil
		})
	tr := one(t, found)
	if tr.TraceID != started[0].TraceID {
		t.Errorf("the stall is in trace %s, its operation in %s", tr.TraceID, started[0].TraceID)
	}
	if n := len(tr.Named("ccl.all_reduce")); n > 0 {
		t.Errorf("%d operations have ended, of one that hangs", n)
	}
	waits := make(map[int]int)
	for _, s := range tr.Named("ccl.stall") {
		rank := number(t, s, "ccl.rank")
		waits[rank] = number(t, s, "ccl.wait.rank")
		checkStall(t, s, started[rank], began)
	}
	for rank := range started {
		at := rank
		for range len(waits) {
			if at != missing {
				at = waits[at]
			}
		}
		if started[rank] != nil && at != missing {
			t.Errorf("nobody can see that rank %d waits for rank %d: the ranks wait for %v", rank, missing, waits)
		}
	}

	// Then the all-reduce goes on.
	ended := time.Now()
	e2e.Kill(t, pids[missing], syscall.SIGUSR1)
	if code := run.ExitCode(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	ops := awaitOps(j, job, 3)
	if tr = one(t, ops); tr.TraceID != started[0].TraceID {
		t.Errorf("the operation is in trace %s, its announcement in %s", tr.TraceID, started[0].TraceID)
	}
	for rank, s := range byRankBut(t, tr, "ccl.all_reduce") {
		if s == nil {
			continue
		}
		if s.SpanID != started[rank].Parent() || s.StartTime != started[rank].StartTime {
			t.Errorf("rank %d: the operation %s began at %v; announced was %s at %v",
				rank, s.SpanID, s.Start(), started[rank].Parent(), started[rank].Start())
		}
		if s.End().Before(ended.Truncate(time.Microsecond)) || s.Tags["error"] == "true" {
			t.Errorf("rank %d: the operation ended at %v, after %v expected, and well: %v",
				rank, s.End(), ended, s.Tags)
		}
	}
}

// awaitOps waits for the all-reduce's spans of n ranks other than the missing one, which was quick and may lack a span.
func awaitOps(j *Jaeger, job string, n int) []Trace {
	j.t.Helper()
	return j.Await(Query{Operation: "ccl.all_reduce", Tags: map[string]string{"ccl.job": job}},
		func(traces []Trace) error {
			got := 0
			for i := range traces {
				for _, s := range traces[i].Named("ccl.all_reduce") {
					if s.Tags["ccl.rank"] != strconv.Itoa(missing) {
						got++
					}
				}
			}
			if got != n {
				return fmt.Errorf("%d spans of ranks that waited, want %d", got, n)
			}
			return nil
		})
}

// byRankBut is byRank for all ranks of four except the missing one, which may have such a span, too.
func byRankBut(t *testing.T, tr *Trace, name string) []*Span {
	t.Helper()
	spans := make([]*Span, 4)
	for _, s := range tr.Named(name) {
		rank := number(t, s, "ccl.rank")
		if spans[rank] != nil {
			t.Fatalf("two spans %s of rank %d:\n%v", name, rank, tr)
		}
		spans[rank] = s
	}
	spans[missing] = nil
	for rank, s := range spans {
		if s == nil && rank != missing {
			t.Fatalf("no span %s of rank %d:\n%v", name, rank, tr)
		}
	}
	return spans
}

// checkStall checks the span of a stall: it is an error that has lasted since the operation began.
func checkStall(t *testing.T, s, started *Span, began time.Time) {
	t.Helper()
	switch {
	case started == nil:
		t.Errorf("a stall of rank %s, which has announced nothing", s.Tags["ccl.rank"])
	case s.Parent() != started.Parent() || s.StartTime != started.StartTime:
		t.Errorf("rank %s: the stall of %s since %v; announced was %s at %v", s.Tags["ccl.rank"], s.Parent(), s.Start(),
			started.Parent(), started.Start())
	case s.Duration < 500_000 || s.Start().Before(began):
		t.Errorf("rank %s: the stall lasts %d µs from %v; the threshold is 500 ms, the job began at %v",
			s.Tags["ccl.rank"], s.Duration, s.Start(), began)
	case s.Tags["otel.status_code"] != "ERROR" || s.Tags["otel.status_description"] == "" || s.Tags["error.type"] == "":
		t.Errorf("rank %s: the stall doesn't say what is wrong: %v", s.Tags["ccl.rank"], s.Tags)
	}
}

// number returns an attribute that is a number.
func number(t *testing.T, s *Span, key string) int {
	t.Helper()
	n, err := strconv.Atoi(s.Tags[key])
	if err != nil {
		t.Fatalf("%s of %s is %q: %v", key, s.OperationName, s.Tags[key], s.Tags)
	}
	return n
}
