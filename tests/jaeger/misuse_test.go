package jaeger

import (
	"fmt"
	"strings"
	"testing"
)

// TestDoubleDestroy looks for the mistake beside the act that made it a mistake.
func TestDoubleDestroy(t *testing.T) {
	j := Start(t)
	run, _ := startRole(t, "twice", "twice", "has destroyed it twice", j.Env("http/protobuf"), "--tape-dir",
		t.TempDir())
	if code := run.ExitCode(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	checkDoubleDestroy(t, one(t, await(j, "twice", "ccl.comm.destroy", 2*4)))

	// The query of a person who looks for errors.
	found := j.Await(Query{Tags: map[string]string{"error": "true", "error.type": "destroyed"}},
		func(traces []Trace) error {
			if len(traces) != 1 {
				return fmt.Errorf("%d traces with such an error", len(traces))
			}
			return nil
		})
	checkNoWarnings(t, found)
}

// checkDoubleDestroy checks that each of four ranks has destroyed a communicator, and then has made the mistake of
// destroying it again.
func checkDoubleDestroy(t *testing.T, tr *Trace) {
	t.Helper()
	for rank := range 4 {
		var first, second *Span
		for _, s := range tr.Named("ccl.comm.destroy") {
			switch {
			case s.Tags["ccl.rank"] != fmt.Sprint(rank):
			case s.Tags["error"] == "true":
				second = s
			default:
				first = s
			}
		}
		if first == nil || second == nil {
			t.Fatalf("rank %d lacks one of two destroys:\n%v", rank, tr)
		}
		if second.Parent() != first.SpanID || !second.LinksTo(first) {
			t.Errorf("rank %d: the second destroy refers to %v, want the first one as parent and by a link: %s",
				rank, second.References, first.SpanID)
		}
		if second.Tags["error.type"] != "destroyed" || second.Tags["otel.status_code"] != "ERROR" ||
			!strings.Contains(second.Tags["otel.status_description"],
				"already destroyed by jaeger.twice (rank_test.go:") {
			t.Errorf("rank %d: the second destroy's error is %q, status %q, described as %q", rank,
				second.Tags["error.type"], second.Tags["otel.status_code"], second.Tags["otel.status_description"])
		}
		if second.Tags["ccl.first.line"] == "" || second.Tags["ccl.first.line"] == second.Tags["code.line.number"] {
			t.Errorf("rank %d: the second destroy doesn't say where the first was: %v", rank, second.Tags)
		}
		if second.StartTime < first.StartTime {
			t.Errorf("rank %d: the second destroy is at %v, the first at %v", rank, second.Start(), first.Start())
		}
	}
}
