package verdict_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/ras/verdict"
)

// containedJobs have a verdict on rank 2: one in which it has a rank in the job, and one in which it has none.
func containedJobs() []job {
	nameless := func(n *verdict.Note, s *verdict.Slot) { n.Rank, s.Job = -1, -1 }
	late := func() job {
		return newJob(4).in(world, 41, allReduce, s6, 2, s6, 0, 1, 3).did(world, 40, allReduce, s6, 2).
			with(contained, 0, 1, 2, 3)
	}
	return []job{late(), late().with(nameless, 2).with(fate(verdict.Dead, s6, ""), 2)}
}

// TestContainerHasOneName: the agent of a machine, and later a post-mortem by the tapes, which doesn't know the
// machine's name, name a process in a container alike; if it has a rank in the job, verdicts on it have the same ID.
func TestContainerHasOneName(t *testing.T) {
	taped := func(n *verdict.Note, _ *verdict.Slot) { n.Member, n.Machine = fmt.Sprintf("%s-%d", n.Host, n.PID), "" }
	for i, hang := range containedJobs() {
		live, _ := verdict.Diagnose(hang)
		after, _ := verdict.Diagnose(containedJobs()[i].with(taped, 0, 1, 2, 3))
		if len(live) != 1 || len(after) != 1 {
			t.Fatalf("verdicts: %v, and later %v", live, after)
		}
		culprit := live[0].Culprits[0]
		if culprit.Job >= 0 && live[0].ID != after[0].ID {
			t.Errorf("the verdict on %v has the ID %s, and later %s", culprit, live[0].ID, after[0].ID)
		}
		if diff := cmp.Diff(after[0].Text.String(), live[0].Text.String()); diff != "" {
			t.Error(diff)
		}
		if name := culprit.Process(); name != "pod-2-1002" {
			t.Errorf("the culprit is process %s", name)
		}
	}
}

// TestIDNeedsNoHostName: an agent that wasn't told a container's host name gives verdicts the same IDs as others.
func TestIDNeedsNoHostName(t *testing.T) {
	untold := func(n *verdict.Note, _ *verdict.Slot) { n.Host, n.Machine = n.Machine, "" }
	for i, hang := range containedJobs() {
		told, _ := verdict.Diagnose(hang)
		other, _ := verdict.Diagnose(containedJobs()[i].with(untold, 0, 1, 2, 3))
		if len(told) != 1 || len(other) != 1 || told[0].ID != other[0].ID {
			t.Errorf("verdicts are %v, and by the other agent %v", told, other)
		}
	}
}
