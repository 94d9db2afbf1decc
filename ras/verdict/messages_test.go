package verdict_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// talked counts n messages, each way, with each of the other ranks.
func talked(n uint64, others ...int) func(*verdict.Note, *verdict.Slot) {
	return func(_ *verdict.Note, s *verdict.Slot) {
		s.Counted, s.Enqueues = true, true
		if s.Messages == nil {
			s.Messages = map[int32]model.Messages{}
		}
		for _, r := range others {
			s.Messages[int32(r)] = model.Messages{Sent: n, Received: n}
		}
	}
}

// exchanges puts ranks into groups of messages on their streams. The slot shows the last of a group alone: a message to
// the next rank.
func (j job) exchanges(age time.Duration, ranks ...int) job {
	for _, r := range ranks {
		j = j.in(world, 9, lifecycle.CallSend, age, -1, 0, r).with(func(_ *verdict.Note, s *verdict.Slot) {
			s.Phase, s.Begun, s.Done = tape.PhaseStream, 8, 8
			s.Op.Peer = int32((r + 1) % len(j))
		}, r)
	}
	return j
}

// receives has a rank in a receive of message 9 from another one.
func receives(from int32) func(*verdict.Note, *verdict.Slot) {
	return func(n *verdict.Note, s *verdict.Slot) {
		s.Messages[from] = model.Messages{Sent: 8}
		takes(9, from)(n, s)
	}
}

// takes puts a rank into the last of n receives from another one.
func takes(n uint64, from int32) func(*verdict.Note, *verdict.Slot) {
	return func(_ *verdict.Note, s *verdict.Slot) {
		s.Op.Call, s.Op.Peer, s.Seq = lifecycle.CallRecv, from, n
		s.Messages[from] = model.Messages{Sent: s.Messages[from].Sent, Received: n}
	}
}

// mismatch fails a rank's call with what the engine says of that of another rank.
func mismatch(peer int, detail string) func(*verdict.Note, *verdict.Slot) {
	return func(n *verdict.Note, s *verdict.Slot) {
		failed(lifecycle.CodeMismatch, peer)(n, s)
		s.Failure.Text = (&lifecycle.PeerError{
			Code: lifecycle.CodeMismatch, Rank: peer, Name: s.Name, Self: s.Rank, Call: s.Op.Call, Seq: s.Seq,
			Detail: detail,
		}).Error()
	}
}

// madeGroups gives a rank a trail of groups of messages with these sizes.
func madeGroups(bytes ...uint64) func(*verdict.Note, *verdict.Slot) {
	return func(n *verdict.Note, _ *verdict.Slot) {
		h := verdict.Habit{Root: 1}
		for i, b := range bytes {
			h.Trail = append(h.Trail, verdict.Mark{
				Call: 3, Seq: uint64(i + 1), Op: tape.Signature{Call: lifecycle.CallGroupEnd, Peer: -1, Bytes: b},
			})
		}
		n.Habits = []verdict.Habit{h}
	}
}

// Groups of messages that don't match are described as the engine says, with the communicator's ranks if these are not
// the job's. The rank whose message is the first one in its direction is at fault, if the other rank has had many.
func TestMismatchOfGroups(t *testing.T) {
	const detail = "count: rank 0 says send to rank 1 8, rank 1 says recv from rank 0 7"
	counts := func(other int32, sent, received uint64) func(*verdict.Note, *verdict.Slot) {
		return func(_ *verdict.Note, s *verdict.Slot) {
			s.Counted, s.Messages = true, map[int32]model.Messages{other: {Sent: sent, Received: received}}
		}
	}
	inPP := func(change func(*verdict.Note, *verdict.Slot)) func(*verdict.Note, *verdict.Slot) {
		return func(n *verdict.Note, _ *verdict.Slot) { change(n, &n.Slots[1]) }
	}
	testNotes(t, []noteTest{
		{
			"in the job's ranks", newJob(2).in(world, 9, lifecycle.CallGroupEnd, s6, -1, 0, 0, 1).
				with(mismatch(1, detail), 0).with(mismatch(0, detail), 1),
			[]string{
				`mismatch (likely) ranks 0 and 1 made calls on "world" that do not match, and it is not known which ` +
					`is wrong: ` + detail,
			},
		},
		{
			"in the communicator's", newJob(4).comm("pp", 2, 3).in("pp", 9, lifecycle.CallGroupEnd, s6, -1, 0, 2, 3).
				with(inPP(mismatch(1, detail)), 2).with(inPP(mismatch(0, detail)), 3),
			[]string{
				`mismatch (likely) ranks 2 and 3 made calls on "pp" that do not match, and it is not known which is ` +
					`wrong: by the ranks of "pp", ` + detail,
			},
		},
		{
			"a new direction", newJob(2).in(world, 9, lifecycle.CallSendRecv, s6, -1, 0, 0, 1).
				with(mismatch(1, detail), 0).with(mismatch(0, detail), 1).with(counts(1, 9, 0), 0).
				with(counts(0, 1, 8), 1),
			[]string{
				`mismatch (likely) rank 1 (node1, pid 1001) made a call on "world" that does not match the others'`,
			},
		},
		{
			"an odd group, behind which it went on", newJob(2).in(world, 9, allReduce, s6, -1, 0, 0).
				in(world, 9, lifecycle.CallGroupEnd, s6, -1, 0, 1).with(failed(lifecycle.CodeMismatch, 1), 0).
				with(failed(lifecycle.CodeMismatch, -1), 1).with(counts(1, 8, 8), 0).with(counts(0, 9, 9), 1).
				with(madeGroups(8, 8, 8, 4), 0).with(madeGroups(8, 8, 8, 8), 1),
			[]string{
				`mismatch (likely) rank 0 (node0, pid 1000) made a call on "world" that does not match the others'`,
			},
		},
		{
			"one is out of balance", newJob(4).in(world, 9, allReduce, s6, -1, 0, 0, 2, 3).
				in(world, 9, lifecycle.CallGroupEnd, s6, -1, 0, 1).with(failed(lifecycle.CodeMismatch, 1), 0, 1, 2, 3).
				with(counts(1, 8, 8), 0).with(counts(0, 9, 9), 1).with(madeGroups(8, 8, 8, 4), 0),
			[]string{
				`mismatch (likely) rank 0 (node0, pid 1000) made a call on "world" that does not match the others' ` +
					`calls: rank 0 was in all_reduce 9 on "world"; rank 1 was in a group of messages on "world"`,
			},
		},
		{
			"beside a group that is not ended", newJob(2).in(world, 9, lifecycle.CallSendRecv, s6, -1, 0, 0, 1).
				with(mismatch(1, detail), 0).with(mismatch(0, detail), 1).with(opensGroup(7*time.Second), 0),
			[]string{
				`unfinished_group (certain) rank 0 (node0, pid 1000) has a group that has been open for 7s (started ` +
					`at train.go:7): call GroupEnd; until then its calls are not made, and it has made other calls ` +
					`on "world"; rank 1 waits`,
			},
		},
		{
			"new to both", newJob(2).in(world, 2, lifecycle.CallSendRecv, s6, -1, 0, 0, 1).
				with(mismatch(1, detail), 0).with(mismatch(0, detail), 1).with(counts(1, 2, 0), 0).
				with(counts(0, 1, 1), 1),
			[]string{
				`mismatch (likely) ranks 0 and 1 made calls on "world"`,
			},
		},
	})
}

// full fills the counts of a rank with its first peers.
func full(_ *verdict.Note, s *verdict.Slot) {
	for r := 0; len(s.Messages) < model.MaxPeers; r++ {
		if r != s.Rank {
			talked(1, r)(nil, s)
		}
	}
}

// sent puts a rank into the last of n sends to another one.
func sent(n uint64, to int32) func(*verdict.Note, *verdict.Slot) {
	return func(_ *verdict.Note, s *verdict.Slot) {
		s.Seq, s.Op.Call, s.Op.Peer = n, lifecycle.CallSend, to
		s.Messages[to] = model.Messages{Sent: n, Received: s.Messages[to].Received}
	}
}

// line is a job of four ranks that have exchanged n messages with their neighbours, each way.
func line(n uint64) job {
	return newJob(4).did(world, 8, allReduce, s6, 0, 1, 2, 3).with(talked(n, 1), 0).with(talked(n, 0, 2), 1).
		with(talked(n, 1, 3), 2).with(talked(n, 2, 0), 3).with(talked(n, 3), 0)
}

// TestGroupsOfMessages: in a group of messages, which a device performs together, a rank waits for the peers that have
// launched fewer of theirs, and for no other rank.
func TestGroupsOfMessages(t *testing.T) {
	destroyed := func(_ *verdict.Note, s *verdict.Slot) { s.Left = &verdict.Left{Act: tape.ActDestroy, Age: s5} }
	open := func(_ *verdict.Note, s *verdict.Slot) { s.Phase = tape.PhaseNone }
	network := func(_ *verdict.Note, s *verdict.Slot) { s.Phase, s.Wait, s.WaitAge = tape.PhaseNetwork, 2, s5 }
	pipeline := newJob(4).did(world, 1, allReduce, 2*s6, 0, 1, 2, 3)
	for r := range pipeline {
		pipeline = pipeline.with(func(_ *verdict.Note, s *verdict.Slot) {
			s.Counted, s.Enqueues, s.Messages = true, true, map[int32]model.Messages{}
			if r > 0 {
				s.Messages[int32(r-1)] = model.Messages{Received: 6}
				s.Op, s.Seq, s.Age = tape.Signature{Call: lifecycle.CallRecv, Peer: int32(r - 1), Bytes: 64}, 6, s5
			}
			switch r {
			case 0:
				s.Messages[1] = model.Messages{Sent: 6}
			case 1, 2:
				s.Messages[int32(r+1)] = model.Messages{Sent: 5}
			}
			s.Unproven = r > 1
		}, r)
	}
	unknown := line(9).exchanges(s5, 0, 2, 3)
	unknown[1].Slots = nil
	large := newJob(130)
	for r := range large {
		large = large.did(world, 8, allReduce, s6, r).with(full, r)
	}
	for _, c := range []struct {
		name string
		job  job
		want []string // parts of the verdicts
	}{
		{
			"one has not launched its part",
			line(9).exchanges(s5, 0, 2, 3).with(talked(8, 0, 2), 1),
			[]string{`not_entered (certain): rank 1 (node0, pid 1001) has not sent message 9 to rank 0 on "world"`},
		},
		{
			"one has received, and not sent",
			line(9).exchanges(s5, 0, 2, 3).with(func(_ *verdict.Note, s *verdict.Slot) {
				s.Messages[2] = model.Messages{Sent: 8, Received: 9}
			}, 1),
			[]string{`not_entered (certain): rank 1 (node0, pid 1001) has not sent message 9 to rank 2 on "world"`},
		},
		{
			"one has sent, and not received",
			line(9).exchanges(s5, 0, 2, 3).with(func(_ *verdict.Note, s *verdict.Slot) {
				s.Messages[2] = model.Messages{Sent: 9, Received: 8}
			}, 1),
			[]string{`not_entered (certain): rank 1 (node0, pid 1001) has not called recv for message 9 from rank 2`},
		},
		{
			"one makes a collective instead, and nothing is known of what they did before",
			line(9).exchanges(s5, 0, 2, 3).with(talked(8, 0, 2), 1).in(world, 9, allReduce, s5, -1, 0, 1),
			[]string{`mismatch (certain): ranks 0 and 1 wait for each other: rank 0 is in a group of messages`},
		},
		{
			"one has come to it, and its stream has not",
			line(9).exchanges(s5, 0, 2, 3).in(world, 9, lifecycle.CallRecv, s5, -1, 0, 1).with(queued, 1),
			[]string{`stream_blocked (likely): rank 1 (node0, pid 1001) launched recv 9 on "world"`},
		},
		{
			"one has destroyed the communicator",
			line(9).exchanges(s5, 0, 2, 3).with(talked(8, 0, 2), 1).with(destroyed, 1),
			[]string{`not_entered (certain): rank 1 (node0, pid 1001) destroyed "world" 5s ago, and has not ` +
				`sent message 9 to rank 0 on "world"`},
		},
		{"others have destroyed it, after their part", line(9).exchanges(s5, 1, 2).with(destroyed, 0, 3), nil},
		{
			"one has not launched its part, and the others' programs have gone on",
			line(12).exchanges(s5, 0, 2).with(func(_ *verdict.Note, s *verdict.Slot) { s.InFlight = 7 }, 0, 2).
				with(talked(8, 0, 2), 1).with(talked(9, 0, 2), 3),
			[]string{`not_entered (certain): rank 1 (node0, pid 1001) has not sent message 9 to rank 0 on "world"`},
		},
		{
			"one has not launched its part, and the stream of another is busy with something else",
			line(9).exchanges(s5, 0, 2).with(talked(8, 0, 2), 1).in(world, 9, lifecycle.CallRecv, s5, -1, 0, 3).
				with(queued, 3),
			[]string{`not_entered (certain): rank 1 (node0, pid 1001) has not sent message 9 to rank 0 on "world"`},
		},
		{
			"ranks in it ended in an earlier collective",
			line(9).exchanges(s5, 0, 2, 3).in(world, 8, allReduce, s5, -1, 0, 1).
				with(fate(verdict.Dead, s5, "it was ended by SIGKILL"), 1),
			[]string{`rank_dead (certain): rank 1 (node0, pid 1001) ended 5s ago: it was ended by SIGKILL`},
		},
		{
			"one has not ended its group",
			line(9).exchanges(s5, 0, 1, 2, 3).with(open, 1),
			[]string{`unfinished_group (likely): rank 1 (node0, pid 1001) began a group of messages on "world" ` +
				`5s ago, and it is not launched: its group has not ended, or NCCL is still at it; ranks`},
		},
		{
			"one has not ended the group with its collective",
			line(9).in(world, 9, allReduce, s5, -1, 0, 0, 1, 2, 3).with(onStream, 0, 2, 3).with(open, 1),
			[]string{`unfinished_group (likely): rank 1 (node0, pid 1001) began all_reduce 9 on "world" 5s ago, and`},
		},
		{
			"one has not ended the group with its split",
			line(9).in(world, 9, lifecycle.CallSplit, s5, -1, 0, 0, 1, 2, 3).
				with(act(tape.ActSplit, s5, true), 0, 2, 3),
			[]string{`unfinished_group (likely): rank 1 (node0, pid 1001) began a split of "world" 5s ago, and`},
		},
		{
			"one is not counted",
			line(9).exchanges(s5, 0, 2, 3).with(talked(8, 0, 2), 1).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.Counted = false }, 1),
			[]string{`not_entered (likely): rank 1 (node0, pid 1001) has not`},
		},
		{
			"one ended in it",
			line(9).exchanges(s5, 0, 1, 2, 3).with(fate(verdict.Dead, s5, "it was ended by SIGKILL"), 1),
			[]string{`rank_dead (certain): rank 1 (node0, pid 1001) ended 5s ago: it was ended by SIGKILL`},
		},
		{
			"all have launched it, and the network takes nothing from one",
			line(9).exchanges(s5, 0, 1, 2, 3).with(network, 1),
			[]string{`transport (likely): both have called for their messages on "world", and no data has moved from ` +
				`rank 1 to rank 2 for 5s`},
		},
		{"all have launched it", line(9).exchanges(s5, 0, 1, 2, 3), nil},
		{
			"all launched it, and their devices have come to it",
			line(9).exchanges(s5, 0, 1, 2, 3).with(reached, 0, 1, 2, 3),
			[]string{`unknown (possible): a group of messages on "world" does not complete, and the cause is not ` +
				`known: no rank is known to have called for fewer messages than the others, and their devices`},
		},
		{
			"all launched it long ago",
			line(9).exchanges(3*time.Minute, 0, 1, 2, 3),
			[]string{`unknown (possible): a group of messages on "world" does not complete, and the cause is not ` +
				`known: no rank is known to have called for fewer messages than the others`},
		},
		{
			"two receive first",
			line(8).exchanges(s5, 0, 1).with(receives(1), 0).with(receives(0), 1),
			[]string{`deadlock (certain): ranks 0 and 1 wait for each other`},
		},
		{
			"one waits for a rank that neither has counted",
			large.exchanges(s5, 101).with(func(_ *verdict.Note, s *verdict.Slot) {
				s.Seq, s.Op.Call, s.Op.Peer = 1, lifecycle.CallRecv, 100
			}, 101),
			[]string{`not_entered (likely): rank 100 (node1, pid 1100) has not`},
		},
		{
			"one has launched more messages with another rank behind it",
			line(8).exchanges(s5, 0).with(sent(11, 3), 0).with(sent(9, 1), 0).
				with(func(_ *verdict.Note, s *verdict.Slot) { s.InFlight = 4 }, 0),
			[]string{`not_entered (certain): rank 1 (node0, pid 1001) has not called recv for message 9 from rank 0`},
		},
		{"none has launched it", line(9).exchanges(s5, 0, 1, 2, 3).with(open, 0, 1, 2, 3), nil},
		{
			"two have not launched it",
			line(9).exchanges(s5, 0, 1, 2, 3).with(open, 2, 3),
			[]string{
				`unfinished_group (likely): rank 3 (node1, pid 1003) began a group`,
				`unfinished_group (likely): rank 2 (node1, pid 1002) began a group`,
			},
		},
		{
			"one has just come to their collective",
			line(9).in(world, 9, allReduce, s5, -1, 0, 0, 2, 3).with(onStream, 0, 2, 3).
				in(world, 9, allReduce, time.Millisecond, -1, 0, 1).with(open, 1),
			nil,
		},
		{
			"one has aborted the communicator in it",
			line(9).exchanges(s5, 0, 2, 3).with(aborted, 1),
			[]string{`not_entered (likely): rank 1 (node0, pid 1001) aborted "world" 5s ago, before a group of ` +
				`messages on "world" was done`},
		},
		{
			"one has sent one too many, and the others have destroyed it",
			line(9).exchanges(s5, 0).with(sent(10, 1), 0).with(destroyed, 1, 2, 3),
			[]string{`mismatch (likely): rank 0 (node0, pid 1000) made a call that no other rank makes: a group of`},
		},
		{
			"one has destroyed it that has received one too few, as have others",
			line(9).exchanges(s5, 0).with(sent(9, 1), 0).with(func(_ *verdict.Note, s *verdict.Slot) {
				s.Messages[0] = model.Messages{Sent: 9, Received: 8}
			}, 1).with(destroyed, 1, 2, 3),
			[]string{`not_entered (certain): rank 1 (node0, pid 1001) destroyed "world" 5s ago, and has not called ` +
				`recv for message 9 from rank 0`},
		},
		{
			"one of a pipeline has left out a message, of which the receiver's stream does not tell",
			pipeline.in(world, 2, allReduce, s5, -1, 0, 0, 1).with(onStream, 0, 1),
			[]string{`mismatch (likely): rank 1 (node0, pid 1001) left out a message; the cycle: rank 1 is in ` +
				`all_reduce 2 on "world", which needs rank 2; rank 2 is in a group`},
		},
		{
			"one of a chain sends to another rank than before",
			newJob(4).did(world, 8, allReduce, s6, 0).with(talked(4, 1), 0).exchanges(s5, 1, 2, 3).
				with(talked(3, 0, 2), 1).with(sent(1, 3), 1).with(talked(3, 1, 3), 2).with(takes(4, 1), 2).
				with(talked(3, 2), 3).with(takes(4, 2), 3),
			[]string{`deadlock (likely): rank 1 (node0, pid 1001) called for a message with rank 3, with which it ` +
				`had exchanged none before; the cycle: rank 1 is in a group`},
		},
		{
			"one has sent a message that its receiver has not called for, and may have gone out",
			line(8).with(sent(9, 1), 0).with(func(_ *verdict.Note, s *verdict.Slot) { s.Unproven = true }, 0),
			nil,
		},
		{
			"nothing is known of one",
			unknown,
			[]string{`not_entered (likely): rank 1 (node0, pid 1001) has not entered a group of messages on "world"`},
		},
		{
			"one has captured some of its messages in a graph, and another has not launched its part",
			line(9).exchanges(s5, 0, 2).with(captured, 1).with(talked(8, 0, 2), 1).with(talked(8, 0, 2), 3),
			[]string{`not_entered (certain): rank 3 (node1, pid 1003) has not sent message 9 to rank 0 on "world"`},
		},
		{
			"one has had messages with more ranks than are counted",
			line(9).exchanges(s5, 0, 2, 3).with(func(_ *verdict.Note, s *verdict.Slot) {
				s.Messages = map[int32]model.Messages{}
				for r := range model.MaxPeers {
					s.Messages[int32(100+r)] = model.Messages{Sent: 1}
				}
			}, 1),
			[]string{`not_entered (likely): rank 1 (node0, pid 1001) has not`},
		},
	} {
		verdicts, _ := verdict.Diagnose(c.job)
		var got []string
		for _, v := range verdicts {
			got = append(got, v.Reason.String()+" ("+v.Confidence.String()+"): "+v.Text.String())
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: it is %q, want %q", c.name, got, c.want)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], c.want[i]) {
				t.Errorf("%s: it is %q, want %q", c.name, got[i], c.want[i])
			}
		}
	}
}

// TestOutnumbered: if ranks make two collectives in opposite orders, the smaller side is wrong.
func TestOutnumbered(t *testing.T) {
	for name, c := range map[string]struct {
		first  []int // are in the collective on world, and the others in the one on dp
		wanted string
	}{
		"one against three": {[]int{0, 2, 3}, "rank 1 (node0, pid 1001) made other calls"},
		"two against two":   {[]int{0, 1}, "ranks 0 and 2 wait for each other"},
	} {
		var second []int
		for r := range 4 {
			if !slices.Contains(c.first, r) {
				second = append(second, r)
			}
		}
		j := newJob(4).comm("dp", 0, 1, 2, 3).in(world, 9, allReduce, s5, -1, 0, c.first...).
			in("dp", 9, allReduce, s5, -1, 0, second...)
		verdicts, _ := verdict.Diagnose(j)
		if len(verdicts) != 1 || verdicts[0].Reason != verdict.Deadlock ||
			!strings.HasPrefix(verdicts[0].Text.String(), c.wanted) {
			t.Errorf("%s: it is %v", name, verdicts)
		}
	}
}

// TestWithheld: a rank in an open group withholds the messages that it has called for. The programs of the others have
// not asked NCCL, so that only what these are to receive shows that they wait.
func TestWithheld(t *testing.T) {
	unasked := func(_ *verdict.Note, s *verdict.Slot) { s.InFlight, s.Phase, s.Unproven = 0, tape.PhaseNone, true }
	grouped := func(_ *verdict.Note, s *verdict.Slot) { s.Phase = tape.PhaseGroup }
	ring := newJob(3).exchanges(s6, seq(3)...).
		with(talked(9, 1, 2), 0).with(talked(9, 0, 2), 1).with(talked(9, 0, 1), 2)
	v := alone(t, ring.with(unasked, 0, 1).with(grouped, 2), 2)
	if v.Reason != verdict.UnfinishedGroup || v.Confidence != verdict.Certain {
		t.Errorf("%s (%s): %s", v.Reason, v.Confidence, v.Text)
	}
	verdicts, _ := verdict.Diagnose(ring.with(sent(10, 0), 2).with(grouped, 2)) // in the next round, which is its own
	for _, v := range verdicts {
		if v.Accuses(ring[2].Member) {
			t.Errorf("of the next round: %s (%s): %s", v.Reason, v.Confidence, v.Text)
		}
	}
}
