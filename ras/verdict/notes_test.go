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

// What ranks of a job did is in the scenarios of ras/jobsim, which are played through notes, agents and tapes. Here are
// notes that no simulated job writes: of processes that don't answer, of engines that behave differently, and of
// moments in between.

// hang is a job of four ranks, of which one doesn't come to an all-reduce.
func hang() job {
	return newJob(4).in(world, 41, allReduce, s6, 2, s6, 0, 1, 3).did(world, 40, allReduce, s6, 2)
}

func TestNotes(t *testing.T) {
	testNotes(t, []noteTest{
		{
			"one gave no note, and is not known dead: no guess", newJob(8).comm("half", 0, 1, 2, 3).in("half",
				12, allReduce, s6, 3, s6, 0, 1, 2).without(3),
			[]string{
				`unknown (possible) all_reduce 12 on "half" does not complete, and the cause is not known: ` +
					`nothing is known of rank 3 of "half"`,
			},
		},
		{
			"a mismatch is reported, and the note of the rank that it names is older",
			newJob(4).in(world, 7, lifecycle.CallSendRecv, time.Second, 1, 0, 2).
				with(failed(lifecycle.CodeMismatch, 1), 2),
			nil,
		},
		{
			"a mismatch is reported, and the rank that it names has no note",
			newJob(4).in(world, 7, lifecycle.CallSendRecv, time.Second, 1, 0, 2).
				with(failed(lifecycle.CodeMismatch, 1), 2).without(1),
			nil,
		},
		{
			"one alone is in the init, and knows no other process",
			newJob(4).with(func(n *verdict.Note, s *verdict.Slot) {
				act(tape.ActInit, s6, true)(n, s)
				s.State = lifecycle.StateInitializing
			}, 2).without(0, 1, 3),
			[]string{
				`not_joined (possible) rank 2 (node1, pid 1002) has come to the init of "world", and hears of none ` +
					`of the other 3 ranks: they have not come, or can't meet it`,
			},
		},
		{
			"one has revoked the communicator, and destroyed it since",
			newJob(3).in(world, 7, allReduce, s5, 1, s5, 0, 2).with(failed(lifecycle.CodePeerAborted, 1), 0, 2).
				with(revoked, 1).with(aborted, 1),
			[]string{
				`not_entered (certain) rank 1 (node0, pid 1001) revoked "world" 6s ago (at train.go:9), and never ` +
					`entered all_reduce 7 on "world"; ranks 0 and 2 wait`,
			},
		},
		{
			"one has revoked the communicator, and doesn't come to the shrink",
			newJob(3).in(world, 7, lifecycle.CallShrink, s5, 1, s5, 0, 2).with(revoked, 0, 1, 2),
			[]string{
				`not_joined (certain) rank 1 (node0, pid 1001) has not joined a shrink of "world"`,
			},
		},
		{
			"one of them has given another size in an init",
			newJob(4).with(failed(lifecycle.CodeMismatch, 1), 0).with(failed(lifecycle.CodeMismatch, 0), 1, 2, 3).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Size = 5 }, 3),
			[]string{`mismatch (certain) rank 3 (node1, pid 1003) gave 5 as the size of "world", and the others 4`},
		},
		{
			"half of them have",
			newJob(4).with(failed(lifecycle.CodeMismatch, 1), 0).with(failed(lifecycle.CodeMismatch, 0), 1, 2, 3).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Size = 5 }, 2, 3),
			[]string{
				`mismatch (likely) the ranks gave different sizes of "world", and it is not known which is wrong: ` +
					`ranks 0 and 1: 4; ranks 2 and 3: 5`,
			},
		},
		{
			"two take one rank, and the others have their ranks of the job",
			newJob(4).with(func(_ *verdict.Note, s *verdict.Slot) { s.Rank = 2 }, 3).
				with(failed(lifecycle.CodeMismatch, 2), seq(4)...),
			[]string{
				`mismatch (likely) rank 3 (node1, pid 1003) took rank 2 of "world", which rank 2 (node1, pid 1002) ` +
					`has; ranks 0 to 2 wait`,
			},
		},
		{
			"two take one rank, and others have none of the job",
			newJob(4).with(func(_ *verdict.Note, s *verdict.Slot) { s.Rank = 2 }, 3).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Rank = 1 - s.Rank }, 0, 1).
				with(failed(lifecycle.CodeMismatch, 2), seq(4)...),
			[]string{`mismatch (likely) ranks 2 and 3 took one rank of "world", number 2; ranks 0 and 1 wait`},
		},
		{
			"all have come to the init of a world, and some have not learned yet which id it has in this run",
			newJob(4).with(act(tape.ActInit, s6, true), 0, 1, 2).with(renamed, 0, 3),
			nil,
		},
		{
			"one has come to an init with another id",
			newJob(4).with(act(tape.ActInit, s6, true), seq(4)...).with(func(_ *verdict.Note, s *verdict.Slot) {
				s.Comm = lifecycle.CommID{'x'}
			}, 3),
			[]string{
				`mismatch (likely) rank 3 (node1, pid 1003) gave an init another id than the others; the cycle: ` +
					`rank 0 is in the init of "world", which needs rank 3; rank 3 is in the init of "world", which ` +
					`needs rank 0; ranks 0 to 2 wait`,
			},
		},
		{
			"one is in the init of what a split made, and the note of another is from before it came to the split",
			splits(newJob(4)),
			nil,
		},
		{
			"one fails in a call, and others that had failed, which is not known, destroy the communicator later",
			newJob(4).in(world, 7, allReduce, time.Second, 1, time.Second, 0).
				with(failed(lifecycle.CodePeerAborted, 1), 0).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Age, s.Failure.Age = 5*time.Second, 5*time.Second }, 0).
				with(func(_ *verdict.Note, s *verdict.Slot) {
					s.Left = &verdict.Left{Act: tape.ActDestroy, Age: time.Second}
				}, 2, 3).
				with(func(_ *verdict.Note, s *verdict.Slot) {
					s.Left = &verdict.Left{Act: tape.ActAbort, Age: 5100 * time.Millisecond}
				}, 1),
			[]string{`not_entered (likely) rank 1 (node0, pid 1001) aborted "world"`},
		},
		{
			"all but one of the job are in the init of what grows, and that one, which had left its parent, is stopped",
			newJob(4).with(act(tape.ActInit, s6, true), 0, 1, 2).
				with(func(_ *verdict.Note, s *verdict.Slot) { copy(s.Parent[:], "small") }, 0, 1, 2).
				with(fate(verdict.Stopped, s6, ""), 3).
				with(func(_ *verdict.Note, s *verdict.Slot) {
					s.Comm, s.Left = [16]byte{'o'}, &verdict.Left{Act: tape.ActDestroy, Age: 2 * s6}
				}, 3),
			[]string{`rank_stopped (likely) rank 3 (node1, pid 1003) stopped 6s ago; ranks 0 to 2 wait`},
		},
		{
			"stages of two pipelines are in step but for what was in their groups, and nothing is known of the ends",
			pipelines(),
			[]string{"deadlock (certain) ranks 5 to 9 wait for each other: rank 5 is in all_reduce 1"},
		},
		{
			"one destroys a communicator, and another learns of it by the end of a process that failed because of it",
			newJob(4).in(world, 7, allReduce, s5, -1, 0, 0, 1, 2).with(failed(lifecycle.CodePeerAborted, 3), 0, 1).
				with(failed(lifecycle.CodeRankDead, 1), 2).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Age, s.Failure.Age = time.Second/2, time.Second/2 }, 2).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Failure.Age = time.Second }, 0, 1).
				with(fate(verdict.Dead, time.Second/2, "it exited with 1"), 1).
				with(func(_ *verdict.Note, s *verdict.Slot) {
					s.Left = &verdict.Left{Act: tape.ActDestroy, Age: 2 * time.Second}
				}, 3),
			[]string{`not_entered (certain) rank 3 (node1, pid 1003) destroyed "world" 2s ago`},
		},
		{
			"three are in an all-reduce, and the engine names one in messages; for whom it waits isn't known",
			newJob(4).in(world, 7, allReduce, s5, -1, 0, 0, 1, 2).in(world, 9, lifecycle.CallGroupEnd, s5, -1, 0, 3).
				with(failed(lifecycle.CodeMismatch, 3), 0, 1, 2, 3),
			[]string{
				`mismatch (likely) the ranks made calls on "world" that do not match, and it is not known which is ` +
					`wrong: rank 0 was in all_reduce 7`,
			},
		},
		{
			"the same, and it is in a group more than the others have made: it left out the all-reduce",
			newJob(4).in(world, 7, allReduce, s5, -1, 0, 0, 1, 2).in(world, 9, lifecycle.CallGroupEnd, s5, -1, 0, 3).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Groups = 8 }, 0, 1, 2).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Groups = 9 }, 3).
				with(failed(lifecycle.CodeMismatch, 3), 0, 1, 2, 3),
			[]string{`mismatch (likely) rank 3 (node1, pid 1003) made a call on "world" that does not match`},
		},
		{
			"the same, and it waited for rank 1",
			newJob(4).in(world, 7, allReduce, s5, -1, 0, 0, 1, 2).in(world, 9, lifecycle.CallGroupEnd, s5, -1, 0, 3).
				with(failed(lifecycle.CodeMismatch, 3), 0, 1, 2, 3).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Failure.Wait = 1 }, 3),
			[]string{
				`mismatch (likely) ranks 1 and 3 made calls on "world" that do not match, and it is not known which ` +
					`is wrong`,
			},
		},
		{
			"a group of messages meets an all-reduce: a group does not show its messages, so that none is left out",
			newJob(4).in(world, 1, allReduce, s5, -1, 0, 1, 2, 3).in(world, 2, lifecycle.CallGroupEnd, s5, -1, 0, 0).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Groups = 2 }, 0, 1, 2, 3).
				with(failed(lifecycle.CodeMismatch, 1), 0, 2, 3).with(failed(lifecycle.CodeMismatch, 0), 1).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Failure.Wait = 1 }, 0),
			[]string{
				`mismatch (likely) ranks 0 and 1 made calls on "world" that do not match, and it is not known which ` +
					`is wrong`,
			},
		},
		{
			"the two ranks of a communicator are in groups of messages that differ, and the engine names one",
			newJob(2).in(world, 2, lifecycle.CallGroupEnd, s5, -1, 0, 0, 1).
				with(failed(lifecycle.CodeMismatch, 0), 0, 1),
			[]string{
				`mismatch (likely) ranks 0 and 1 made calls on "world" that do not match, and it is not known which ` +
					`is wrong`,
			},
		},
		{
			"a rank that ended the communicator has no note yet",
			newJob(2).in(world, 7, allReduce, time.Second, 1, 0, 0).with(failed(lifecycle.CodePeerAborted, 1), 0).
				without(1),
			nil,
		},
		{
			"a rank that gave up has no note yet",
			newJob(2).in(world, 7, allReduce, time.Second, 1, 0, 0).with(failed(lifecycle.CodeAbandoned, 1), 0).
				without(1),
			nil,
		},
		{
			"one is alive, and its tape can't be read",
			hang().with(silent, 2).with(func(n *verdict.Note, _ *verdict.Slot) { n.Stale = true }, 2),
			[]string{
				`unknown (possible) all_reduce 41 on "world" does not complete, and the cause is not known: the ` +
					`tape of rank 2 cannot be read`,
			},
		},
		{
			"their communicator has another order than the job, which a launcher numbers",
			newJob(3).in(world, 7, allReduce, s6, -1, 0, 1, 2).with(func(n *verdict.Note, s *verdict.Slot) {
				s.Rank = 2 - n.Rank
				s.Job = s.Rank
			}, 0, 1, 2),
			[]string{
				`not_entered (certain) rank 0 (node0, pid 1000) has not entered all_reduce 7 on "world", nor any ` +
					`collective from number 1 on; it has made no call on any communicator yet; ranks 1 and 2 wait`,
			},
		},
		{
			"all have left, and one of them never came",
			newJob(4).in(world, 7, allReduce, s6, -1, 0, 0, 1, 2).with(fate(verdict.Departed, s5, ""), seq(4)...),
			[]string{
				`rank_dead (certain) rank 3 (node1, pid 1003) left the job 5s ago, and has not entered all_reduce 7 ` +
					`on "world"; ranks 0 to 2 waited, and have ended`,
			},
		},
		{
			"one has left in the middle of it",
			newJob(4).in(world, 7, allReduce, s6, -1, 0, seq(4)...).with(fate(verdict.Departed, s5, ""), 2),
			[]string{
				`rank_dead (certain) rank 2 (node1, pid 1002) left the job 5s ago, in the middle of all_reduce 7 on ` +
					`"world"; ranks 0, 1 and 3 wait`,
			},
		},
		{
			"one has left in the middle of it, and nothing is known of others",
			newJob(2).in(world, 7, allReduce, s6, -1, 0, 0, 1).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Size = 4 }, 0, 1).
				with(fate(verdict.Departed, s5, ""), 1),
			[]string{
				`unknown (possible) all_reduce 7 on "world" does not complete, and the cause is not known: nothing ` +
					`is known of ranks 2 and 3 of "world"`,
				`rank_dead (certain) rank 1 (node1, pid 1001) left the job 5s ago, in the middle of all_reduce 7 on ` +
					`"world"; rank 0 waits`,
			},
		},
		{
			"one has left as soon as it had come, and one has not come",
			newJob(4).in(world, 7, allReduce, s6, -1, 0, 0, 1, 2).with(fate(verdict.Departed, s6, ""), 1),
			[]string{
				`not_entered (certain) rank 3 (node1, pid 1003) has not entered all_reduce 7 on "world", nor any ` +
					`collective from number 1 on; it has made no call on any communicator yet; ranks 0 and 2 wait; ` +
					`rank 1 waited, and has ended`,
				`rank_dead (certain) rank 1 (node0, pid 1001) left the job 6s ago, in the middle of all_reduce 7 on ` +
					`"world"; ranks 0 and 2 wait`,
			},
		},
		{
			"two of a host left together, and nobody reads their tapes",
			newJob(4).in(world, 7, allReduce, s6, -1, 0, 0, 1).with(silent, 2, 3).
				with(fate(verdict.Departed, s6, ""), 2, 3),
			[]string{
				`unknown (possible) ranks 2 and 3 of host node1 ended together 6s ago, and which was first is not ` +
					`known: no process of that host is left to read their tapes; ranks 0 and 1 wait`,
			},
		},
		{
			"two hosts' ranks exited, some at the same moment, and nobody reads their tapes",
			newJob(6).in(world, 7, allReduce, s6, -1, 0, 0, 1).with(silent, 2, 3, 4, 5).
				with(fate(verdict.Dead, s6, "it exited with 1"), 2, 4).with(fate(verdict.Dead, s5+s6/10, ""), 3, 5),
			[]string{
				`unknown (possible) ranks 2 to 5 of hosts node0, node1 ended together 6s ago, and which was first is ` +
					`not known: no process of those hosts is left to read their tapes; ranks 0 and 1 wait`,
			},
		},
		{
			"they are in containers of one machine",
			newJob(4).in(world, 7, allReduce, s6, -1, 0, 0, 1).with(silent, 2, 3).with(contained, 2, 3).
				with(fate(verdict.Departed, s6, ""), 2, 3),
			[]string{
				`unknown (possible) ranks 2 and 3 of host node1 ended together 6s ago, and which was first is not ` +
					`known: no process of that host is left to read their tapes; ranks 0 and 1 wait`,
			},
		},
		{
			"two containers of a machine are out of reach",
			hang().with(contained, 2, 3).with(fate(verdict.Unreachable, s6, ""), 2, 3),
			[]string{
				`rank_unreachable (certain) ranks 2 and 3 of host node1 stopped answering 6s ago`,
			},
		},
		{
			"one left, by whom a message of two others failed",
			newJob(4).in(world, 7, lifecycle.CallSend, time.Second, 3, 0, 0).in(world, 7, lifecycle.CallRecv,
				time.Second, 0, 0, 3).with(messageBetween03, 0, 3).with(notStalled, 0, 3).
				with(failed(lifecycle.CodePeerAborted, 2), 0, 3).with(silent, 2).
				with(fate(verdict.Departed, s6, ""), 2),
			[]string{`rank_dead (likely) rank 2 (node1, pid 1002) left the job 6s ago; ranks 0 and 3 wait`},
		},
		{
			"nothing is known of one at the first init",
			newJob(4).with(silent, 2, 3).with(act(tape.ActInit, 12*time.Second, true), 0, 1).without(3),
			[]string{
				`not_joined (certain) rank 2 (node1, pid 1002) has not joined the init of "world"; it has made no ` +
					`call on any communicator yet; ranks 0 and 1 wait`,
				`not_joined (likely) rank 3 has not joined the init of "world"; ranks 0 and 1 wait`,
			},
		},
		{
			"one has not read yet what its rank in the child of a split is",
			newJob(3).comm("pair", 0, 1).in(world, 4, lifecycle.CallSplit, s6, -1, 0, 1).
				did(world, 4, lifecycle.CallSplit, s6, 0, 2).with(act(tape.ActSplit, s6, true), 1).
				with(func(n *verdict.Note, _ *verdict.Slot) {
					s := &n.Slots[1]
					s.State, s.Acts = lifecycle.StateInitializing, []verdict.OpenAct{
						{Act: tape.ActInit, Age: s6, Stalled: true},
					}
					if n.Rank == 1 {
						s.Rank = -1
					}
				}, 0, 1),
			nil,
		},
		{
			"those that are to join have not come", grows(2, 0, 1),
			[]string{`not_joined (likely) a grow of "world" waits for joining ranks that have not arrived; ` +
				`ranks 0 and 1 wait`},
		},
		{
			"one of two has come, and knows the others by no id", joined(grows(2, 0, 1), 4, 2),
			[]string{`not_joined (likely) a grow of "world" waits for joining ranks that have not arrived; ` +
				`ranks 0 to 2 wait`},
		},
		{"all have come: slow, and nobody's fault", joined(joined(grows(2, 0, 1), 4, 2), 4, 3), nil},
		{
			"one has come, and a rank stays away from the grow", joined(grows(3, 0, 2), 4, 3),
			[]string{`not_joined (certain) rank 1 (node0, pid 1001) has not joined a grow of "world"; its last, ` +
				`all_reduce 2 on "world", ended 6s ago; ranks 0, 2 and 3 wait`},
		},
		{
			"one has come, and nobody grows", joined(newJob(2), 3, 2),
			[]string{`not_joined (certain) ranks 0 and 1 have not joined the init of "grown"; rank 2 waits`},
		},
		{
			"a dead one left no tape", newJob(4).in(world, 41, allReduce, s6, 2, s6, 0, 1, 3).with(silent,
				2).with(fate(verdict.Dead, 3*time.Millisecond, "it was ended by SIGKILL"), 2),
			[]string{
				`rank_dead (likely) rank 2 (node1, pid 1002) ended 3ms ago: it was ended by SIGKILL; ` +
					`ranks 0, 1 and 3 wait`,
			},
		},
		{
			"what a rank does meanwhile is evidence", hang().with(func(n *verdict.Note, _ *verdict.Slot) {
				n.Where = "reading a file"
			}, 2),
			[]string{
				`not_entered (certain) rank 2 (node1, pid 1002) has not entered all_reduce 41 on "world"; its last, ` +
					`all_reduce 40 on "world", ended 6s ago; ranks 0, 1 and 3 wait`,
			},
		},
		{
			"one was canceled in a call of which the others had all they needed",
			newJob(2).in(world, 9, allReduce, s6, 0, s6, 1).with(failed(lifecycle.CodePeerAborted, 0), 1).
				did(world, 8, allReduce, time.Millisecond, 0).with(failed(lifecycle.CodeCanceled, -1), 0), nil,
		},
		{
			"the same, but it was not canceled",
			newJob(2).in(world, 9, allReduce, s6, 0, s6, 1).with(failed(lifecycle.CodePeerAborted, 0), 1).
				did(world, 8, allReduce, time.Millisecond, 0),
			[]string{`not_entered (certain) rank 0 (node0, pid 1000) `},
		},
		{
			"the one that they waited for has come, and one note is older",
			newJob(4).in(world, 41, allReduce, s6, 2, s6, 3).did(world, 41, allReduce, 5*time.Millisecond, 0, 1, 2),
			nil,
		},
		{
			"bytes come: slow, and nobody's fault",
			newJob(4).in(world, 8, allReduce, 30*time.Second, 1, 20*time.Millisecond,
				0, 1, 2, 3), nil,
		},
		{
			"from one rank to the next nothing comes",
			newJob(4).in(world, 8, allReduce, 9*time.Second, 3, 7*time.Second, 0).in(world, 8, allReduce, 9*time.Second,
				0, 6900*time.Millisecond, 1).
				in(world, 8, allReduce, 9*time.Second, 1, 8900*time.Millisecond, 2).in(world, 8, allReduce,
				9*time.Second, 2, 8*time.Second, 3),
			[]string{
				`transport (likely) all ranks are in all_reduce 8 on "world", and no data has moved from rank 1 to ` +
					`rank 2 for 8.9s, over TCP from host node0 to host node1`,
			},
		},
		{
			"the same, and messages to other nodes go through the rank on the receiver's rail",
			newJob(4).in(world, 8, allReduce, 9*time.Second, 3, 7*time.Second, 0, 2).
				in(world, 8, allReduce, 9*time.Second, 2, 6900*time.Millisecond, 1).
				in(world, 8, allReduce, 9*time.Second, 0, 8900*time.Millisecond, 3).with(pxn, 0, 1, 2, 3),
			[]string{
				`transport (certain) all ranks are in all_reduce 8 on "world", and no data has moved from rank 0 to ` +
					`rank 3 for 8.9s, over TCP from host node0 to host node1, on rail 1 and through the proxy of ` +
					`rank 1;`,
			},
		},
		{
			"a launcher ends the others of one that was killed",
			newJob(3).did(world, 8, allReduce, s6, 0, 1, 2).
				with(fate(verdict.Dead, time.Second, "it was ended by SIGKILL"), 1).
				with(told(900*time.Millisecond), 0, 2),
			[]string{`rank_dead (certain) rank 1 (node0, pid 1001) ended 1s ago: it was ended by SIGKILL`},
		},
		{
			"all are told to end",
			newJob(3).did(world, 8, allReduce, s6, 0, 1, 2).with(told(900*time.Millisecond), 0, 1).
				with(told(time.Second), 2),
			nil,
		},
		{
			"one alone is told to end",
			newJob(3).did(world, 8, allReduce, s6, 0, 1, 2).with(told(time.Second), 2),
			[]string{`rank_dead (certain) rank 2 (node1, pid 1002) ended 1s ago: it was ended by SIGTERM`},
		},
		{
			"all of a machine are told to end, and nothing is known of the other machine's",
			newJob(4).did(world, 8, allReduce, s6, 2, 3).with(told(time.Second), 2, 3).without(0, 1),
			nil,
		},
		{
			"nothing is known of the ranks of another machine, which were told to end",
			newJob(4).in(world, 9, allReduce, s6, -1, 0, 0, 1).without(2, 3),
			[]string{
				`unknown (possible) all_reduce 9 on "world" does not complete, and the cause is not known: ` +
					`nothing is known of ranks 2 and 3 of "world"`,
			},
		},
		{
			"a host stands still, which shows by another process of it",
			newJob(4).comm("pair", 1, 2).in("pair", 8, allReduce, s6, 1, s6, 1).in("pair", 8, allReduce, s6, 0, s6, 2).
				in(world, 9, allReduce, s6, 3, s6, 0).with(fate(verdict.Stopped, s6, ""), 3),
			[]string{`rank_stopped (certain) rank 3 (node1, pid 1003) stopped 6s ago; rank 0 waits`},
		},
		{
			"a process was stopped when the connection had been dead for long",
			newJob(4).comm("pair", 1, 2).in("pair", 8, allReduce, s6, 1, s6, 1).in("pair", 8, allReduce, s6, 0, s6, 2).
				with(fate(verdict.Stopped, time.Second, ""), 3),
			[]string{
				`transport (certain) all ranks are in all_reduce 8 on "pair", and no data has moved from rank 2 ` +
					`(1 on "pair") to rank 1 (0 on "pair") for 6s, over TCP from host node1 to host node0`,
				`rank_stopped (certain) rank 3 (node1, pid 1003) stopped 1s ago`,
			},
		},
		{
			"the one that carries a message is stopped, and has nothing to do with it",
			newJob(4).in(world, 8, lifecycle.CallSend, s6, 3, s6, 0).in(world, 8, lifecycle.CallRecv, s6, 0, s6, 3).
				with(pxn, 0, 1, 2, 3).with(messageBetween03, 0, 3).with(fate(verdict.Stopped, 5*time.Second, ""), 1),
			[]string{`rank_stopped (certain) rank 1 (node0, pid 1001) stopped 5s ago; ranks 0 and 3 wait`},
		},
		{
			"two exchange messages, and neither hears of the other",
			newJob(2).in(world, 3, lifecycle.CallSendRecv, s6, 1, s6, 0).in(world, 3, lifecycle.CallSendRecv, s6, 0, s6,
				1),
			[]string{
				`transport (certain) rank 0 and rank 1 exchange messages, and no data has moved in either direction ` +
					`for 6s, over TCP from host node0 to host node1`,
			},
		},
		{
			"one has ended the call, the others end it in a moment",
			newJob(2).did(world, 9, allReduce, time.Millisecond,
				0).in(world, 9, allReduce, s6, 0, time.Millisecond, 1), nil,
		},
		{
			"it makes other calls for ever, and never this one",
			newJob(4).comm("pair", 2, 3).in(world, 9, lifecycle.CallBarrier, 3*time.Minute, 2, 3*time.Minute,
				0, 1).did(world, 8, lifecycle.CallBarrier, 3*time.Minute, 2, 3).
				did("pair", 977, allReduce, time.Millisecond, 2, 3),
			[]string{`not_entered (possible) ranks 2 and 3 have not entered barrier 9 on "world"; ranks 0 and 1 wait`},
		},
		{
			"a rank that goes on after the end of a communicator that others need",
			newJob(3).comm("dp", 0, 2).comm("tp", 0, 1).in("dp", 3, allReduce, s6, 0, s6, 2).in(world, 7, allReduce, s6,
				0, s6, 1).in("tp", 5, allReduce, s5, 1, s5, 0).with(func(n *verdict.Note, _ *verdict.Slot) {
				n.Slots[1].Left = &verdict.Left{Act: tape.ActDestroy, Age: s6, Site: "train.go:9"}
			}, 0),
			[]string{
				`not_entered (certain) rank 0 (node0, pid 1000) destroyed "dp" 6s ago (at train.go:9), and never ` +
					`entered all_reduce 3 on "dp"`,
			},
		},
		{
			"a group of messages where the others split, as the rank that it is with is named",
			newJob(4).in(world, 8, lifecycle.CallGroupEnd, s6, 1, s6, 0).in(world, 17, lifecycle.CallSplit, s6, 0, s6,
				1, 2, 3).with(failed(lifecycle.CodeMismatch, 1), 0, 2, 3).with(
				failed(lifecycle.CodeMismatch, 0), 1).with(
				func(_ *verdict.Note, s *verdict.Slot) { s.Groups, s.Age = 8, 2*time.Millisecond }, 0).with(
				func(_ *verdict.Note, s *verdict.Slot) { s.Groups = 7 }, 1, 2, 3).with(
				func(_ *verdict.Note, s *verdict.Slot) { s.Failure.Age /= 2 }, 1),
			[]string{
				`mismatch (likely) rank 0 (node0, pid 1000) made a call on "world" that does not match the others' ` +
					`calls: rank 0 was in a group of messages on "world"; rank 1 was in a split of "world"; ranks 1 `,
			},
		},
		{
			"all wait for each other now and then",
			newJob(3).with(waited(1, 2500*time.Millisecond, 50, 10*time.Second),
				0).with(waited(2, 2500*time.Millisecond, 50, 10*time.Second), 1).
				with(waited(0, 2500*time.Millisecond, 50, 10*time.Second), 2), nil,
		},
		{"one long wait of a job that has just begun", newJob(3).with(waited(1, time.Second, 30, 1200*time.Millisecond),
			0, 2), nil},
		{
			"one rank is waited for in each step",
			newJob(4).with(waited(2, 3*time.Second, 50, 10*time.Second), 0, 1, 3),
			[]string{
				`straggler (likely) rank 2 (node1, pid 1002) holds up "world": the others wait for it 30 % of the ` +
					`time, 60ms an operation`,
			},
		},
		{
			"one rank is waited for long, in few steps",
			newJob(4).with(waited(2, 8*time.Second, 300, 20*time.Second), 0, 1, 3).with(
				func(_ *verdict.Note, s *verdict.Slot) {
					s.Waited[0].Long, s.Waited[0].LongTime = 6, int64(2*s6)
				}, 0, 1, 3),
			[]string{
				`straggler (likely) rank 2 (node1, pid 1002) holds up "world": the others wait for it 70 % of the ` +
					`time, most of that in 6 of 300 operations, 2s each`,
			},
		},
		{
			"two of two with a mismatch, as the engine found it",
			newJob(2).in(world, 7, allReduce, s6, 1, s6, 0).in(world, 7, lifecycle.CallBarrier, s6, 0, s6, 1),
			[]string{
				`mismatch (likely) the ranks made different calls as number 7 on "world", and it is not known ` +
					`which is wrong: rank 0: all_reduce of float32, 4096 bytes; rank 1: barrier`,
			},
		},
	})
}

// noteTest is notes, and the verdicts that they must give.
type noteTest struct {
	name string
	job  job
	want []string // beginnings of "reason (confidence) text"
}

func testNotes(t *testing.T, tests []noteTest) {
	t.Helper()
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			verdicts, _ := verdict.Diagnose(c.job)
			var got []string
			for i := range verdicts {
				got = append(got,
					fmt.Sprintf("%s (%s) %s", verdicts[i].Reason, verdicts[i].Confidence, verdicts[i].Text))
			}
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
			for _, v := range verdicts {
				if c.job[2%len(c.job)].Where != "" && !slices.ContainsFunc(v.Evidence, func(e verdict.Text) bool {
					return strings.Contains(e.String(), "reading a file")
				}) {
					t.Errorf("what it does meanwhile is not in %v", v.Evidence)
				}
			}
		})
	}
}
