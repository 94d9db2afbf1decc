package model_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestMomentOfThePast folds a tape as it was at each of its moments.
func TestMomentOfThePast(t *testing.T) {
	events := []tape.Event{
		{IsLife: true, Life: tape.LifeRecord{
			Stage: tape.StageStart, Act: tape.ActSplit, Seq: 1, Time: 10 * ms,
			Start: 10 * ms,
		}},
		{Op: tape.OpRecord{Stage: tape.StageEnd, Seq: 1, Start: 20 * ms, Time: 30 * ms, Signature: allReduce}},
		{IsLife: true, Life: tape.LifeRecord{
			Stage: tape.StageEnd, Act: tape.ActSplit, Seq: 1, Time: 40 * ms,
			Start: 10 * ms,
		}},
		{
			IsLife: true,
			Life:   tape.LifeRecord{Stage: tape.StageEnd, Act: tape.ActGrow, Seq: 1, Time: 60 * ms, Start: 50 * ms},
		},
	}
	for now, want := range map[int64]string{
		15: "1 none: split 1 since 10; begun 0 done 0\n",
		25: "1 none: split 1 since 10; all_reduce 1 since 20; begun 1 done 0\n",
		35: "1 none: split 1 since 10; begun 1 done 1\n",
		45: "1 none: begun 1 done 1\n",
		55: "1 none: grow 1 since 50; begun 1 done 1\n",
		75: "1 none: all_reduce 2 since 70; begun 1 done 1\n",
	} {
		p := newProcess(model.Limits{})
		for i := range events {
			ev := events[i]
			ev.Comm, ev.Generation = world, 1
			p.Until(&ev, now*ms)
		}
		later := slot(1, 2, 70, true)
		later.State = lifecycle.StateFailed // a later state
		p.LookBack([]tape.Slot{later}, now*ms)
		p.expect(t, fmt.Sprint("at ", now), want)
	}
}

// TestLookBackAtAStream: a call that launched an operation had returned; the proof that the stream has done the
// operation may be from a later moment.
func TestLookBackAtAStream(t *testing.T) {
	for _, marked := range []bool{false, true} {
		p := newProcess(model.Limits{Floor: 5 * time.Millisecond})
		p.Until(&tape.Event{Comm: world, Generation: 1, Op: tape.OpRecord{
			Stage: tape.StageEnd, Seq: 1, Start: 20 * ms, Time: 21 * ms, Signature: allReduce,
		}}, 30*ms)
		later := slot(1, 2, 70, true)
		later.Marked = marked
		p.LookBack([]tape.Slot{later}, 30*ms)
		if got := p.Unproven(p.Comm(1), 30*ms); got != marked {
			t.Errorf("marked %v: unproven is %v", marked, got)
		}
	}
}

// TestLookBackAtMessages: messages counted after the moment, in a call that has not returned, don't count.
func TestLookBackAtMessages(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		launched, call, ends int64 // when the operation in flight and the last call began, and when the last one ended
		want                 bool
	}{
		{"all calls had ended", 20, 20, 21, true},
		{"a call has begun since", 20, 40, 21, false},
		{"a call has ended since", 20, 20, 40, false},
		{"all was idle, and is", 0, 20, 21, true},
		{"all was idle, and a call has ended since", 0, 40, 41, false},
	} {
		p := newProcess(model.Limits{})
		p.Until(&tape.Event{Comm: world, Generation: 1, Op: tape.OpRecord{
			Stage: tape.StageEnd, Seq: 1, Start: 10 * ms, Time: 11 * ms, Signature: allReduce,
		}}, 30*ms)
		later := slot(1, 2, max(tt.launched, tt.call), tt.launched > 0)
		if tt.launched > 0 {
			later.OpStart = tt.launched * ms
		}
		later.Marked, later.CallStart, later.LastEnd = true, tt.call*ms, tt.ends*ms
		later.Counted, later.Messages[0] = true, tape.PeerMessages{Rank: 1, Sent: 2}
		p.LookBack([]tape.Slot{later}, 30*ms)
		if c := p.Comm(1); c.Counted != tt.want || tt.want && c.Messages[1].Sent != 2 {
			t.Errorf("%s: counted %t, %v", tt.name, c.Counted, c.Messages)
		}
	}
}

// The record of a communicator's end has the counts of its messages; if it has none, the counts of the last look are
// outdated.
func TestMessagesAtTheEnd(t *testing.T) {
	before := slot(1, 2, 70, false)
	before.Counted, before.Messages[0] = true, tape.PeerMessages{Rank: 1, Sent: 2, Received: 1}
	for _, at := range [][]tape.PeerMessages{nil, {}, {{Rank: 1, Sent: 3, Received: 3}, {Rank: 2, Sent: 1}}} {
		p := newProcess(model.Limits{})
		p.Look([]tape.Slot{before}, nil)
		if c := p.Comm(1); !c.Counted || c.Messages[1] != (model.Messages{Sent: 2, Received: 1}) {
			t.Errorf("after a look, it has %v, counted %t", c.Messages, c.Counted)
		}
		p.life(80, tape.LifeRecord{Stage: tape.StageEnd, Act: tape.ActDestroy, Start: 79, Peer: -1, Messages: at})
		c := p.Known(1)
		if c.Counted != (at != nil) || at != nil && len(c.Messages) != len(at) {
			t.Errorf("with %v, it has %v, counted %t", at, c.Messages, c.Counted)
		}
		for _, m := range at {
			want := model.Messages{Sent: uint64(m.Sent), Received: uint64(m.Received)}
			if got := c.Messages[m.Rank]; got != want {
				t.Errorf("with rank %d, it has %v, want %v", m.Rank, got, want)
			}
		}
	}
}

// Later events of a rank show that a communicator existed before, and how far it was, unless they were its beginning.
func TestUntilTellsFromWhatCameLater(t *testing.T) {
	for want, events := range map[string][]tape.OpRecord{
		"1 ready: begun 4 done 4\n": {
			{Stage: tape.StageEnd, Seq: 5, Start: 50 * ms, Time: 60 * ms, Signature: allReduce},
			{Stage: tape.StageEnd, Seq: 6, Start: 70 * ms, Time: 80 * ms, Signature: allReduce},
		},
		"": {
			{Stage: tape.StageEnd, Seq: 1, Start: 50 * ms, Time: 60 * ms, Signature: allReduce},
			{Stage: tape.StageEnd, Seq: 2, Start: 70 * ms, Time: 80 * ms, Signature: allReduce},
		},
	} {
		p := newProcess(model.Limits{})
		for _, r := range events {
			p.Until(&tape.Event{Comm: world, Generation: 1, Op: r}, 10*ms)
		}
		p.expect(t, "before", want)
	}
}
