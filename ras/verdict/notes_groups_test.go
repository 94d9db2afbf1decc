package verdict_test

import (
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestNotesOfGroups is TestNotes for groups and group jobs that don't end.
func TestNotesOfGroups(t *testing.T) {
	testNotes(t, []noteTest{
		{
			"a group job that nobody completes is in the way of a split",
			newJob(4).in(world, 12, lifecycle.CallSplit, s6, 2, s6, 0, 1, 3).did(world, 11, allReduce, 9*time.Second,
				2).with(act(tape.ActGroup, 9*time.Second, false), 2),
			[]string{
				`unfinished_group (certain) rank 2 (node1, pid 1002) has a group job that has been open for ` +
					`9s: call Wait or AsyncError (ncclCommGetAsyncError); until then it cannot enter a split of ` +
					`"world"; ranks 0, 1 and 3 wait`,
			},
		},
		{
			"and of its own finalize",
			newJob(2).with(act(tape.ActGroup, 9*time.Second, false), 1).with(act(tape.ActFinalize, s6, true), 1),
			[]string{
				`unfinished_group (certain) finalize of "world" on rank 1 (node1, pid 1001) waits for a group job ` +
					`that has been open for 9s: call Wait or AsyncError (ncclCommGetAsyncError)`,
			},
		},
		{
			"a group that is never ended",
			newJob(3).in(world, 7, allReduce, s6, -1, 0, 0, 2).with(opensGroup(7*time.Second), 1),
			[]string{
				`unfinished_group (certain) rank 1 (node0, pid 1001) has a group that has been open for 7s (started ` +
					`at train.go:7): call GroupEnd; until then its calls are not made, and it has not entered ` +
					`all_reduce 7 on "world"; ranks 0 and 2 wait`,
			},
		},
		{
			"a group that was opened after the others had long waited",
			newJob(3).in(world, 7, allReduce, s6, -1, 0, 0, 2).with(opensGroup(time.Second), 1),
			[]string{
				`not_entered (certain) rank 1 (node0, pid 1001) has not entered all_reduce 7 on "world", nor any ` +
					`collective from number 1 on; it has made no call on any communicator yet; ranks 0 and 2 wait`,
			},
		},
		{
			"a group that is never ended, on another communicator",
			newJob(3).comm("pair", 1, 2).in(world, 7, allReduce, s6, -1, 0, 0, 2).with(
				func(n *verdict.Note, _ *verdict.Slot) { opensGroup(7*time.Second)(n, &n.Slots[1]) }, 1),
			[]string{
				`not_entered (certain) rank 1 (node0, pid 1001) has not entered all_reduce 7 on "world", nor any ` +
					`collective from number 1 on; it has made no call on any communicator yet; ranks 0 and 2 wait`,
			},
		},
		{
			"a group that is never ended, around a message; the rank goes on",
			newJob(3).in(world, 1, lifecycle.CallRecv, s6, 1, s6, 0).with(func(_ *verdict.Note, s *verdict.Slot) {
				s.Op.Peer, s.Begun = 1, 0
			}, 0).in(world, 1, allReduce, s6, 0, s6, 1, 2).with(opensGroup(7*time.Second), 1),
			[]string{
				`unfinished_group (certain) rank 1 (node0, pid 1001) has a group that has been open for 7s (started ` +
					`at train.go:7): call GroupEnd; until then its calls are not made, and it has not sent message 1 ` +
					`to rank 0 on "world"; ranks 0 and 2 wait`,
			},
		},
		{
			"and blocks on another communicator",
			newJob(3).comm("pair", 0, 1).in(world, 7, allReduce, s6, 1, s6, 0, 2).in("pair", 3, allReduce, s6, 0, s6,
				1).with(opensGroup(7*time.Second), 1),
			[]string{
				`unfinished_group (certain) rank 1 (node0, pid 1001) has a group that has been open for 7s (started ` +
					`at train.go:7): call GroupEnd; until then its calls are not made, and it has not entered ` +
					`all_reduce 7 on "world"; ranks 0 and 2 wait`,
			},
		},
		{
			"or there waits for a rank that computes",
			newJob(4).comm("pair", 1, 3).in(world, 7, allReduce, s6, 1, s6, 0, 2).in("pair", 3, allReduce, s6, 1, s6,
				1).did(world, 7, allReduce, s6, 3).with(opensGroup(7*time.Second), 1),
			[]string{
				`not_entered (certain) rank 3 (node1, pid 1003) has not entered all_reduce 3 on "pair", nor any ` +
					`collective from number 1 on; its last, all_reduce 7 on "world", ended 6s ago; ranks 0 to 2 wait`,
			},
		},
		{
			"or goes on on another communicator",
			newJob(3).comm("pair", 0, 1).in(world, 7, allReduce, s6, 1, s6, 0, 2).did("pair", 30, allReduce,
				time.Millisecond, 1).with(opensGroup(7*time.Second), 1),
			[]string{
				`unfinished_group (likely) rank 1 (node0, pid 1001) has a group that has been open for 7s (started ` +
					`at train.go:7): call GroupEnd; until then its calls are not made, and it has not entered ` +
					`all_reduce 7 on "world"; ranks 0 and 2 wait`,
			},
		},
		{
			"the call in it is what it is told for",
			newJob(4).comm("pair", 1, 3).in("pair", 3, allReduce, 7*time.Second, 1, s6, 3).in(world, 7, allReduce, s6,
				1, s6, 0, 2).with(opensGroup(7*time.Second), 1),
			[]string{
				`unfinished_group (certain) rank 1 (node0, pid 1001) has a group that has been open for 7s (started ` +
					`at train.go:7): call GroupEnd; until then its calls are not made, and it has not entered ` +
					`all_reduce 7 on "world"; ranks 0, 2 and 3 wait`,
			},
		},
		{
			"a group that is never ended, and nobody waits",
			newJob(3).with(opensGroup(9*time.Second), 1).with(func(_ *verdict.Note, s *verdict.Slot) {
				s.Acts[0].Stalled = true
			}, 1).did(world, 30, allReduce, time.Millisecond, 0, 1, 2),
			[]string{
				`unfinished_group (possible) rank 1 (node0, pid 1001) has a group that has been open for 9s (started ` +
					`at train.go:7): call GroupEnd; until then the calls in it are not made`,
			},
		},
		{
			"groups that are never ended, and nobody waits",
			newJob(3).with(opensGroup(9*time.Second), 0, 1).with(func(_ *verdict.Note, s *verdict.Slot) {
				s.Acts[0].Stalled = true
			}, 0, 1).did(world, 30, allReduce, time.Millisecond, 0, 1, 2),
			[]string{
				`unfinished_group (possible) ranks 0 and 1 have a group that has been open for 9s: call GroupEnd; ` +
					`until then the calls in it are not made`,
			},
		},
		{
			"a group that was never ended, of a communicator that the rank has ended",
			newJob(3).with(opensGroup(9*time.Second), 1).with(func(_ *verdict.Note, s *verdict.Slot) {
				s.Acts[0].Stalled, s.Left = true, &verdict.Left{Act: tape.ActDestroy, Age: s6}
			}, 1).did(world, 30, allReduce, time.Millisecond, 0, 1, 2), nil,
		},
		{
			"a finalize beside groups that are never ended",
			newJob(3).with(opensGroup(9*time.Second), 1, 2).with(act(tape.ActFinalize, s6, true), 1, 2),
			[]string{
				`not_entered (likely) rank 0 (node0, pid 1000) has not entered the finalize of "world"; it has made ` +
					`no call on any communicator yet; ranks 1 and 2 wait`,
			},
		},
		{
			"an act beside a group that is not ended doesn't wait for it",
			newJob(2).with(opensGroup(9*time.Second), 1).with(act(tape.ActRevoke, s6, true), 1), nil,
		},
	})
}
