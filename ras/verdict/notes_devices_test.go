package verdict_test

import (
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// TestNotesOfDevices is TestNotes for jobs whose calls launch operations onto the streams of devices.
func TestNotesOfDevices(t *testing.T) {
	testNotes(t, []noteTest{
		{
			"a stream is busy, and the program has gone on",
			newJob(4).in(world, 41, allReduce, s6, -1, 0, seq(4)...).with(onStream, 0, 1, 3).with(queued, 2),
			[]string{
				`stream_blocked (certain) rank 2 (node1, pid 1002) launched all_reduce 41 on "world" 6s ago, and the ` +
					`stream of its device is busy with earlier work; ranks 0, 1 and 3 wait`,
			},
		},
		{
			"a stream is busy, maybe with a graph",
			newJob(4).in(world, 41, allReduce, s6, -1, 0, seq(4)...).with(onStream, 0, 1, 3).with(queued, 2).with(
				captured, 2),
			[]string{`stream_blocked (likely) rank 2 (node1, pid 1002) launched all_reduce 41 on "world" 6s ago`},
		},
		{
			"a stream is busy, and others have not launched",
			newJob(4).in(world, 41, allReduce, s6, -1, 0, 0, 1, 2).with(onStream, 0, 1).with(queued, 2).did(world, 40,
				allReduce, s6, 3),
			[]string{
				`stream_blocked (certain) rank 2`,
				`not_entered (certain) rank 3`,
			},
		},
		{
			"others have launched more calls since, on their streams",
			hang().with(func(_ *verdict.Note, s *verdict.Slot) { s.InFlight, s.Begun, s.Wait = 4, 44, -1 }, 0, 1, 3),
			[]string{
				`not_entered (certain) rank 2 (node1, pid 1002) has not entered all_reduce 41 on "world"; its last, ` +
					`all_reduce 40 on "world", ended 6s ago; ranks 0, 1 and 3 wait`,
			},
		},
		{
			"calls were launched that can't be done",
			pending(6 * time.Second),
			[]string{
				`not_entered (certain) rank 2 (node1, pid 1002) has not entered all_reduce 43 on "world", nor any ` +
					`collective from number 41 on; its last, all_reduce 40 on "world", returned 6s ago; ` +
					`ranks 0, 1 and 3 wait`,
			},
		},
		{
			"a rank that is behind has not ended its group",
			pending(6*time.Second).in(world, 43, allReduce, s5, -1, 0, 2).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Counted, s.Enqueues = true, true }, 2),
			[]string{
				`unfinished_group (likely) rank 2 (node1, pid 1002) began all_reduce 43 on "world" 5s ago, and it is ` +
					`not launched: its group has not ended, or NCCL is still at it; ranks 0, 1 and 3 wait`,
			},
		},
		{"a rank that is behind goes on", pending(time.Second), nil},
		{
			"the counts of a rank that is behind are old",
			pending(6*time.Second).with(func(n *verdict.Note, _ *verdict.Slot) { n.Stale = true }, 2), nil,
		},
		{
			"a graph may have made the calls that are missing",
			pending(6*time.Second).with(func(_ *verdict.Note, s *verdict.Slot) { s.Captured = 3 }, 2), nil,
		},
		{
			"a root is ahead, which waits for nobody",
			pending(6*time.Second).with(func(_ *verdict.Note, s *verdict.Slot) { s.Op.Call = lifecycle.CallBroadcast },
				0, 1, 3), nil,
		},
		{
			"the last calls are known to be done",
			pending(6*time.Second).with(func(_ *verdict.Note, s *verdict.Slot) { s.Unproven = false }, 0, 1, 3), nil,
		},
		{
			"graphs may make calls that are not seen",
			hang().with(func(_ *verdict.Note, s *verdict.Slot) { s.Captured = 3 }, 2),
			[]string{`not_entered (likely) rank 2 (node1, pid 1002) has not entered all_reduce 41 on "world"`},
		},
		{
			"all have launched it, and no stream has done it: slow, and nobody's fault",
			newJob(4).in(world, 8, allReduce, 30*time.Second, -1, 0, 0, 1, 2, 3).with(onStream, 0, 1, 2, 3), nil,
		},
		{
			"the same for minutes",
			newJob(4).in(world, 8, allReduce, 3*time.Minute, -1, 0, 0, 1, 2, 3).with(onStream, 0, 1, 2, 3),
			[]string{
				`unknown (possible) all_reduce 8 on "world" does not complete, and the cause is not known: ` +
					`all ranks have launched it, and the device has not done it`,
			},
		},
		{
			"all devices have come to it",
			newJob(4).in(world, 8, allReduce, s5, -1, 0, seq(4)...).with(reached, seq(4)...),
			[]string{
				`unknown (possible) all_reduce 8 on "world" does not complete, and the cause is not known: ` +
					`all ranks have launched it, and their devices have come to it`,
			},
		},
		{
			"all devices have come to it, of which one may have captured it",
			newJob(4).in(world, 8, allReduce, s5, -1, 0, 0, 2, 3).with(reached, 0, 2, 3).
				did(world, 8, allReduce, s5, 1).with(captured, 1),
			[]string{
				`unknown (possible) all_reduce 8 on "world" does not complete, and the cause is not known: ` +
					`all ranks have called it, and rank 1 captured operations of "world" in CUDA graphs`,
			},
		},
		{
			"all devices have come to it, and something else is wrong",
			newJob(4).in(world, 8, allReduce, s5, -1, 0, seq(4)...).with(reached, seq(4)...).comm("dp", 0, 1).
				in("dp", 3, allReduce, s5, -1, 0, 0).in("dp", 3, lifecycle.CallAllGather, s5, -1, 0, 1),
			[]string{`mismatch (likely) the ranks made different calls as number 3 on "dp"`},
		},
		{
			"all devices have come to it, and one may not have",
			newJob(4).in(world, 8, allReduce, s5, -1, 0, seq(4)...).with(reached, 0, 1, 2).with(onStream, 3), nil,
		},
		{
			"all devices have come to it, and it takes a while",
			newJob(4).in(world, 8, allReduce, s5, -1, 0, seq(4)...).with(reached, seq(4)...).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Op.Bytes = 1 << 30 }, seq(4)...), nil,
		},
	})
}
