package verdict_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/ras/verdict"
)

// TestContainerHasOneName: the agent of a machine, and later a post-mortem by the tapes, which doesn't know the
// machine's name, say the same of a process in a container, under the same ID.
func TestContainerHasOneName(t *testing.T) {
	taped := func(n *verdict.Note, _ *verdict.Slot) { n.Member, n.Machine = fmt.Sprintf("%s-%d", n.Host, n.PID), "" }
	nameless := func(n *verdict.Note, s *verdict.Slot) { n.Rank, s.Job = -1, -1 }
	late := func() job {
		return newJob(4).in(world, 41, allReduce, s6, 2, s6, 0, 1, 3).did(world, 40, allReduce, s6, 2).
			with(contained, 0, 1, 2, 3)
	}
	for _, hang := range []func() job{
		late,
		func() job { return late().with(nameless, 2).with(fate(verdict.Dead, s6, ""), 2) },
	} {
		live, _ := verdict.Diagnose(hang())
		after, _ := verdict.Diagnose(hang().with(taped, 0, 1, 2, 3))
		if len(live) != 1 || len(after) != 1 {
			t.Fatalf("verdicts: %v, and later %v", live, after)
		}
		if live[0].ID != after[0].ID {
			t.Errorf("the verdict on %v has the ID %s, and later %s", live[0].Culprits, live[0].ID, after[0].ID)
		}
		if diff := cmp.Diff(after[0].Text.String(), live[0].Text.String()); diff != "" {
			t.Error(diff)
		}
		if name := live[0].Culprits[0].Process(); name != "pod-2-1002" {
			t.Errorf("the culprit is process %s", name)
		}
	}
}
