package verdict_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/ras/verdict"
)

// TestStackIsEvidence: the stack of the culprit's process is evidence, and is news when it comes later.
func TestStackIsEvidence(t *testing.T) {
	notes := []verdict.Note{
		{Member: "h-0", Rank: 0, JobSize: 2, Fate: verdict.Stopped, FateAge: 1, Stack: nil},
		{Member: "h-1", Rank: 1, JobSize: 2, Stack: []string{"runs"}}, // no culprit
	}
	var tracker verdict.Tracker
	before, _ := verdict.Diagnose(notes)
	tracker.Update(before)
	notes[0].Stack = []string{"is stopped", "is in Python at f (a.py:1)"}
	after, _ := verdict.Diagnose(notes)
	if len(before) != 1 || len(after) != 1 {
		t.Fatalf("the verdicts are %v, and later %v", before, after)
	}
	var got []string
	for _, e := range after[0].Evidence[len(before[0].Evidence):] {
		got = append(got, e.String())
	}
	want := []string{
		"at the time of the verdict: rank 0 is stopped",
		"at the time of the verdict: rank 0 is in Python at f (a.py:1)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("more evidence is %q, want %q", got, want)
	}
	if changes := tracker.Update(after); len(changes) != 1 || changes[0].Kind != verdict.Changed {
		t.Errorf("the changes are %v", changes)
	}
}

// TestStacksWithoutACulprit: if a verdict has no culprit, the stacks of the first two ranks that wait are evidence.
func TestStacksWithoutACulprit(t *testing.T) {
	stuck := newJob(4).in(world, 8, allReduce, 3*time.Minute, -1, 0, seq(4)...).
		with(onStream, seq(4)...)
	for i := range stuck {
		stuck[i].Stack = []string{"sleeps"}
	}
	verdicts, _ := verdict.Diagnose(stuck)
	if len(verdicts) != 1 || verdicts[0].Reason != verdict.Unknown || len(verdicts[0].Culprits) > 0 {
		t.Fatalf("the verdicts are %v", verdicts)
	}
	stacks := 0
	for _, e := range verdicts[0].Evidence {
		if strings.HasPrefix(e.String(), "at the time of the verdict: rank ") {
			stacks++
		}
	}
	if stacks != 2 {
		t.Errorf("there are the stacks of %d ranks: %v", stacks, verdicts[0].Evidence)
	}
}
