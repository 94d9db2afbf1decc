package jaeger

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	os.Exit(e2e.Main(m))
}

// byRank checks that each of n ranks has one span of that name in the trace, and returns the spans in rank order.
func byRank(t *testing.T, tr *Trace, name string, n int) []*Span {
	t.Helper()
	spans := make([]*Span, n)
	for _, s := range tr.Named(name) {
		rank, err := strconv.Atoi(s.Tags["ccl.rank"])
		if err != nil || rank < 0 || rank >= n || spans[rank] != nil {
			t.Fatalf("a span %s too many, of rank %q:\n%v", name, s.Tags["ccl.rank"], tr)
		}
		spans[rank] = s
	}
	if i := slices.Index(spans, nil); i >= 0 {
		t.Fatalf("no span %s of rank %d:\n%v", name, i, tr)
	}
	return spans
}

// spans counts the spans of that name in traces; it is used in conditions.
func spans(traces []Trace, name string) int {
	n := 0
	for i := range traces {
		n += len(traces[i].Named(name))
	}
	return n
}

// await waits for n spans of that name in one job.
func await(j *Jaeger, job, name string, n int) []Trace {
	j.t.Helper()
	return j.Await(Query{Operation: name, Tags: map[string]string{"ccl.job": job}}, func(traces []Trace) error {
		if got := spans(traces, name); got != n {
			return fmt.Errorf("%d spans %s, want %d", got, name, n)
		}
		return nil
	})
}

// one returns the only trace of a list.
func one(t *testing.T, traces []Trace) *Trace {
	t.Helper()
	if len(traces) != 1 {
		t.Fatalf("%d traces, want one that all ranks are in:\n%v", len(traces), traces)
	}
	return &traces[0]
}

// of returns the traces of acts on the communicator with that name.
func of(traces []Trace, comm string) []Trace {
	return slices.DeleteFunc(slices.Clone(traces),
		func(tr Trace) bool { return tr.Spans[0].Tags["ccl.comm.name"] != comm })
}

// checkAct checks what acts of all ranks have in common: rank 0's span is the root and the parent of the others, and
// each is announced.
func checkAct(t *testing.T, tr *Trace, name, job string, n int) []*Span {
	t.Helper()
	acts := byRank(t, tr, name, n)
	for rank, s := range acts {
		if want := acts[0].SpanID; rank > 0 && s.Parent() != want || rank == 0 && s.Parent() != "" {
			t.Errorf("%s of rank %d has parent %q; the root is rank 0's, %s", name, rank, s.Parent(), want)
		}
		if s.Service != Service || s.Process["ccl.job"] != job {
			t.Errorf("%s of rank %d is service %q, job %q", name, rank, s.Service, s.Process["ccl.job"])
		}
	}
	announced := 0
	for _, s := range tr.Named(name + " (started)") {
		i := slices.IndexFunc(acts, func(act *Span) bool {
			return act.StartTime == s.StartTime &&
				act.Process["service.instance.id"] == s.Process["service.instance.id"]
		})
		switch below := acts[0]; {
		case i < 0:
			t.Errorf("announcement %s is of no act of its process:\n%v", s.SpanID, tr)
			continue
		case s.Tags["ccl.rank"] != "":
			below = acts[i]
			fallthrough
		default: // a communicator's init, whose ranks were not known yet, is announced below the root
			if s.Parent() != below.SpanID {
				t.Errorf("announcement %s of rank %d stands below %s, want %s", s.SpanID, i, s.Parent(), below.SpanID)
			}
		}
		announced++
	}
	if announced != n {
		t.Errorf("%d announcements of %s, want %d", announced, name, n)
	}
	return acts
}

// TestJobOfFourProcesses checks the spans of a job's communicators, over both of OTLP's protocols.
func TestJobOfFourProcesses(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			j := Start(t)
			const job, ranks = "four", 4
			run := e2e.Start(t, j.Env(protocol), "carillon", "run", "-n", strconv.Itoa(ranks), "--simulate-nodes", "2",
				"--job", job, "--tape-dir", t.TempDir(), "--", "digits", "-epochs", "2")
			if code := run.ExitCode(); code != 0 {
				t.Fatalf("exit code %d", code)
			}

			// Every rank is in world, in one of two rails and in one of two nodes.
			births := await(j, job, "ccl.comm.init", 3*ranks)
			init := checkAct(t, one(t, of(births, "world")), "ccl.comm.init", job, ranks)
			for rank, s := range init {
				if got := s.Process["service.instance.id"]; got != strconv.Itoa(rank) {
					t.Errorf("rank %d is instance %q", rank, got)
				}
				checkPhases(t, one(t, of(births, "world")), s)
			}

			splits := of(await(j, job, "ccl.comm.split", 2*ranks), "world")
			if len(splits) != 2 {
				t.Fatalf("%d traces of splits, want 2", len(splits))
			}
			for i := range splits {
				for rank, s := range checkAct(t, &splits[i], "ccl.comm.split", job, ranks) {
					if !s.LinksTo(init[rank]) {
						t.Errorf("the split of rank %d has no link to its init: %v", rank, s.References)
					}
					checkChild(t, births, s, init[0])
				}
			}

			ends := await(j, job, "ccl.comm.destroy", 3*ranks)
			for rank, s := range checkAct(t, one(t, of(ends, "world")), "ccl.comm.destroy", job, ranks) {
				if !s.LinksTo(init[rank]) {
					t.Errorf("the destroy of rank %d has no link to its init: %v", rank, s.References)
				}
			}
			checkNoWarnings(t, append(append(births, splits...), ends...))
		})
	}
}

// checkPhases checks that an init's phases follow one after the other within the init.
func checkPhases(t *testing.T, tr *Trace, init *Span) {
	t.Helper()
	at := init.Start()
	for _, phase := range []string{"rendezvous", "topology", "connect"} {
		i := slices.IndexFunc(tr.Spans, func(s *Span) bool {
			return s.OperationName == "ccl.comm.init."+phase && s.Parent() == init.SpanID
		})
		if i < 0 {
			t.Fatalf("no phase %s below %s:\n%v", phase, init.SpanID, tr)
		}
		// Jaeger's times are truncated to microseconds.
		if s := tr.Spans[i]; s.StartTime < at.UnixMicro()-1 || s.End().After(init.End().Add(2000)) {
			t.Errorf("phase %s from %v to %v, after %v and before %v expected",
				phase, s.Start(), s.End(), at, init.End())
		} else {
			at = s.End()
		}
	}
}

// checkChild checks that a split and the init of its child link to each other.
func checkChild(t *testing.T, births []Trace, split, parentInit *Span) {
	t.Helper()
	id := split.Tags["ccl.split.child.id"]
	i := slices.IndexFunc(births, func(tr Trace) bool { return tr.Spans[0].Tags["ccl.comm.id"] == id })
	if id == "" || i < 0 {
		t.Fatalf("no birth of the child %q of split %s", id, split.SpanID)
	}
	child := byRank(t, &births[i], "ccl.comm.init", 2)
	if !split.LinksTo(child[0]) {
		t.Errorf("the split has no link to the birth of its child %s: %v", id, split.References)
	}
	for _, s := range child {
		if !s.LinksTo(parentInit) || s.Tags["ccl.comm.parent.id"] != parentInit.Tags["ccl.comm.id"] {
			t.Errorf("the birth of the child %s has no link to its parent's: %v", id, s.References)
		}
	}
}

// skew matches Jaeger's warning about clocks.
var skew = regexp.MustCompile(`^clock skew adjustment disabled`)

// checkNoWarnings checks that Jaeger has no warnings. That ranks began an act before rank 0 did is no clock skew; this
// Jaeger identifies hosts by an attribute that OpenTelemetry doesn't have, and so can't tell.
func checkNoWarnings(t *testing.T, traces []Trace) {
	t.Helper()
	for _, tr := range traces {
		for _, s := range tr.Spans {
			for _, w := range s.Warnings {
				if !skew.MatchString(w) {
					t.Errorf("%s of rank %s: Jaeger warns: %s", s.OperationName, s.Tags["ccl.rank"], w)
				}
			}
		}
	}
}
