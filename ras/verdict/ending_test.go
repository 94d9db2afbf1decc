package verdict_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// What ends a communicator hangs: in what other ranks have not launched or called, or with all in it.
func TestEnding(t *testing.T) {
	destroys := func(n *verdict.Note, s *verdict.Slot) {
		act(tape.ActDestroy, s6, true)(n, s)
		s.State = lifecycle.StateDestroying
	}
	for _, c := range []struct {
		name string
		job  job
		want []string
	}{
		{"one has not called it", newJob(3).did(world, 7, allReduce, s6, 0, 1, 2).with(destroys, 0, 1), []string{
			`not_entered (likely) rank 2 (node1, pid 1002) has not entered the destroy of "world"; its last, ` +
				`all_reduce 7 on "world", ended 6s ago; ranks 0 and 1 wait`,
		}},
		{
			"one has not made the last collective",
			newJob(3).did(world, 7, allReduce, 7*time.Second, 2).did(world, 8, allReduce, s6, 0, 1).with(
				func(n *verdict.Note, s *verdict.Slot) { s.Unproven, s.Done = true, 7; destroys(n, s) }, 0, 1),
			[]string{
				`not_entered (certain) rank 2 (node1, pid 1002) has not entered all_reduce 8 on "world"; its last, ` +
					`all_reduce 7 on "world", ended 7s ago; ranks 0 and 1 wait`,
			},
		},
		{"all are in it", newJob(2).did(world, 7, allReduce, s6, 0, 1).with(destroys, 0, 1), []string{
			`unknown (possible) the destroy of "world" does not complete, and the cause is not known: all ranks have ` +
				`called it`,
		}},
		{"the others are through", newJob(3).with(destroys, 0).with(func(_ *verdict.Note, s *verdict.Slot) {
			s.Left = &verdict.Left{Act: tape.ActDestroy, Age: s6}
		}, 1, 2), []string{`unknown (possible) the destroy of "world" does not complete`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			verdicts, _ := verdict.Diagnose(c.job)
			var got []string
			for _, v := range verdicts {
				got = append(got, fmt.Sprintf("%s (%s) %s", v.Reason, v.Confidence, v.Text))
			}
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}

// alone checks that one rank is named, and nobody else.
func alone(t *testing.T, j job, rank int) {
	t.Helper()
	if verdicts, _ := verdict.Diagnose(j); len(verdicts) != 1 || len(verdicts[0].Culprits) != 1 ||
		verdicts[0].Culprits[0].Job != rank {
		t.Errorf("got %+v; want rank %d alone", verdicts, rank)
	}
}

// A rank that a shrink leaves out doesn't hold it up.
func TestLeftOut(t *testing.T) {
	shrinks := func(_ *verdict.Note, s *verdict.Slot) {
		s.Acts = []verdict.OpenAct{{Act: tape.ActShrink, Seq: 1, Age: s6, Stalled: true, Without: []int{3}}}
	}
	j := newJob(4).in(world, 7, lifecycle.CallShrink, s6, -1, 0, 0, 2).with(shrinks, 0, 2)
	alone(t, j, 1)
	// But it does hold up what it had to call before.
	j = newJob(4).in(world, 7, allReduce, s6, -1, 0, 0, 1, 2).with(shrinks, 0)
	alone(t, j, 3)
}
