package tape

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
)

// markOf is a mark of communicator 7 behind the n-th launched operation.
func markOf(number uint32, call lifecycle.Call, n, seq, begun uint64) (r record) {
	sig := Signature{Call: call, DataType: 7, Peer: -1, Bytes: 8}
	ranks := pack32(sig.Peer, int32(uint32(begun)))
	store(&r, uint64(number), kindMark, 100*n, seq, packKinds(&sig, 0), ranks, sig.Bytes, n, 7|3<<32)
	return r
}

// A slot shows as in flight what its stream has not done, according to the marks.
func TestMarks(t *testing.T) {
	reduce := func(number uint32, n uint64) record { return markOf(number, lifecycle.CallAllReduce, n, n, n) }
	other := reduce(9, 9)
	store(&other, 9, kindMark, 1, 1, 0, 0, 0, 9, 8) // of another communicator that had the slot before
	torn := reduce(9, 9)
	torn[recBytes]++
	queued := func(number uint32, n uint64) record {
		r := reduce(number, n)
		store(&r, uint64(number), kindMark, r[1], r[2], r[3]|uint64(PhaseQueued)<<32, r[4], r[5], r[6], r[7])
		return r
	}
	type shown struct {
		InFlight, Seq, Done uint64
		Start               int64
		Phase               Phase
		Reached             bool
	}
	all := shown{Seq: 20, Done: 20, Start: 2000}
	for _, c := range []struct {
		name    string
		of      marks
		reached uint32
		begun   uint32
		marked  bool
		want    shown
	}{
		{"none", marks{}, 0, 0, false, all},
		{"all reached", marks{reduce(1, 18), reduce(2, 20)}, 2, 0, true, all},
		{
			"the last one is not",
			marks{reduce(1, 18), reduce(2, 20)},
			1, 0, true,
			shown{1, 20, 19, 2000, PhaseStream, false},
		},
		{
			"the oldest counts",
			marks{reduce(3, 19), reduce(2, 18), reduce(4, 20)},
			1, 0, true,
			shown{3, 18, 17, 1800, PhaseStream, false},
		},
		{
			"numbers begin anew",
			marks{reduce(1, 20), reduce(1<<32-1, 18)},
			1<<32 - 1, 0, true,
			shown{1, 20, 19, 2000, PhaseStream, false},
		},
		{
			"the stream has not come to it",
			marks{queued(2, 20)},
			1, 1, true,
			shown{1, 20, 19, 2000, PhaseQueued, false},
		},
		{"it has", marks{queued(2, 20)}, 1, 2, true, shown{1, 20, 19, 2000, PhaseStream, true}},
		{
			"it has come further",
			marks{queued(1<<32-1, 19), queued(0, 20)},
			1<<32 - 2, 0, true,
			shown{2, 19, 18, 1900, PhaseStream, true},
		},
		{"not its own", marks{other}, 1, 0, false, all},
		{"torn", marks{torn}, 1, 0, false, all},
		{"newer than the slot", marks{reduce(2, 21)}, 1, 0, true, shown{1, 21, 20, 2100, PhaseStream, false}},
		{
			"a message",
			marks{markOf(2, lifecycle.CallSend, 19, 5, 15)},
			1, 0, true,
			shown{2, 5, 15, 1900, PhaseStream, false},
		},
	} {
		s := Slot{
			Generation: 7, Launched: 20, Completed: 20, Begun: 20, Done: 20, Seq: 20, OpStart: 2000, Wait: -1,
			Op: Signature{Call: lifecycle.CallAllReduce, DataType: 7, Peer: -1, Bytes: 8},
		}
		s.applyMarks(&c.of, progress{c.reached, c.begun, false, -1})
		got := shown{s.Launched - s.Completed, s.Seq, s.Done, s.OpStart, s.Phase, s.Reached}
		if diff := cmp.Diff(c.want, got); diff != "" || s.Marked != c.marked {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// The last operation is unproven if the newest mark, which was reached, is before it. Proven is the last collective
// before the newest mark that was reached.
func TestUnproven(t *testing.T) {
	mark := func(number uint32, launched uint64) record {
		return markOf(number, lifecycle.CallAllReduce, launched, launched, launched)
	}
	for _, c := range []struct {
		name      string
		of        marks
		reached   uint32
		completed uint64
		want      bool
		proven    uint64
	}{
		{"behind the last one", marks{mark(2, 20), mark(1, 17)}, 2, 20, false, 20},
		{"before it", marks{mark(1, 17), mark(2, 18)}, 2, 20, true, 18},
		{"before it, and not reached", marks{mark(1, 17), mark(2, 18)}, 1, 20, false, 17},
		{"it is in its call", marks{mark(2, 18)}, 2, 19, false, 18},
		{"none", marks{}, 0, 20, false, 0},
	} {
		s := Slot{Generation: 7, Launched: 20, Completed: c.completed, Begun: 20, Done: c.completed, Seq: 20}
		if s.applyMarks(&c.of, progress{c.reached, 0, false, -1}); s.Unproven != c.want || s.Proven != c.proven {
			t.Errorf("%s: unproven is %v, and %d is proven", c.name, s.Unproven, s.Proven)
		}
	}
}

// TestCaptured: a captured operation ends with its call, in its own phase, and no tally counts it. If the call fails,
// the operation is not captured.
func TestCaptured(t *testing.T) {
	w := newTape(t, Config{})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "world", Size: 2, Engine: "nccl 2.28.9"})
	sig := Signature{Call: lifecycle.CallAllReduce, DataType: 7, Peer: -1, Bytes: 64}
	for _, code := range []lifecycle.Code{lifecycle.CodeOK, lifecycle.CodeSystem} {
		n := c.Start(0, sig, 0)
		c.Captured()
		c.End(n, code)
	}
	c.End(c.Start(0, sig, 0), lifecycle.CodeOK)
	r := openTape(t, w.Path())
	s := r.Slots()[0]
	if s.Captured != 1 || s.Launched != 3 || s.Completed != 3 {
		t.Errorf("of %d operations, %d are completed, and %d captured", s.Launched, s.Completed, s.Captured)
	}
	var captured []uint64
	for _, ev := range all(t, r) {
		if !ev.IsLife && ev.Op.Phase == PhaseCaptured && ev.Op.Stage == StageEnd && !ev.Op.Tallied {
			captured = append(captured, ev.Op.Seq)
		}
	}
	if !slices.Equal(captured, []uint64{1}) {
		t.Errorf("captured are %v", captured)
	}
	if tallies, err := r.AppendTallies(nil); err != nil || len(tallies) != 1 || tallies[0].Count() != 1 {
		t.Errorf("the tallies are %+v, %v", tallies, err)
	}
}

// The wait record beside the marks says what the data of the oldest unfinished operation waits for, if it is for this
// operation.
func TestWaitBesideMarks(t *testing.T) {
	of := func(launched uint64, peer int32) (m marks) {
		m[0] = markOf(2, lifecycle.CallAllReduce, 20, 20, 20)
		store(&m[waitAt], 5, kindWait, 2500, 20, uint64(PhaseNetwork)<<32, pack32(-1, peer), 8, launched, 7|3<<32)
		return m
	}
	type shown struct {
		Phase Phase
		Wait  int32
		Since int64
	}
	for _, c := range []struct {
		name    string
		of      marks
		reached uint32
		want    shown
	}{
		{"its own", of(20, 3), 1, shown{PhaseNetwork, 3, 2500}},
		{"no longer", of(20, -1), 1, shown{PhaseStream, -1, 0}},
		{"another operation's", of(19, 3), 1, shown{PhaseStream, -1, 0}},
		{"it is done", of(20, 3), 2, shown{PhaseNone, -1, 0}},
	} {
		s := Slot{Generation: 7, Launched: 20, Completed: 20, Begun: 20, Done: 20, Seq: 20, Wait: -1}
		s.applyMarks(&c.of, progress{c.reached, 0, false, -1})
		if got := (shown{s.Phase, s.Wait, s.WaitSince}); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// A slot counts its own communicator's messages, not those of the slot's previous owner.
func TestCountsOfMessages(t *testing.T) {
	none := pack32(-1, 7)
	of := func(counted uint64, generations ...int32) (m marked) {
		m.counted.rank = counted
		for i, g := range generations {
			m.peers[i] = peer{pack32(int32(i), g), 5 | uint64(i)<<32}
		}
		return m
	}
	for _, c := range []struct {
		name    string
		of      marked
		counted bool
		want    []PeerMessages
	}{
		{"not counted", of(0), false, nil},
		{"none", of(none), true, nil},
		{"its own", of(none, 7, 7), true, []PeerMessages{{0, 5, 0}, {1, 5, 1}}},
		{"one, and another's behind it", of(none, 7, 6), true, []PeerMessages{{0, 5, 0}}},
		{"another's", of(pack32(-1, 6), 6, 6), false, nil},
	} {
		s := Slot{Generation: 7}
		s.applyMessages(&c.of)
		var got []PeerMessages
		for _, m := range s.Messages {
			if m.Sent > 0 {
				got = append(got, m)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" || s.Counted != c.counted {
			t.Errorf("%s: counted %t, want %t (-want +got):\n%s", c.name, s.Counted, c.counted, diff)
		}
	}
}

// A rank's counts of messages are in its slot, of the first 63 ranks, and on the record of the communicator's failure
// or end. A slot's next owner begins anew, and one without a slot counts nothing.
func TestMessages(t *testing.T) {
	w := newTape(t, Config{Slots: 1})
	r := openTape(t, w.Path())
	c, other := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Size: 99}), w.Comm(CommInfo{ID: lifecycle.CommID{2}, Size: 99})
	other.Messages(1, 8, 9)
	for i := range 70 {
		c.Messages(3*i, uint64(i+1), uint64(2*i))
	}
	c.Messages(6, 100, 4)
	slot := r.Slots()[0]
	if want := (PeerMessages{6, 100, 4}); !slot.Counted || slot.Messages[2] != want {
		t.Errorf("counted %t, and with rank 6 %+v, want %+v", slot.Counted, slot.Messages[2], want)
	}
	if want := (PeerMessages{62 * 3, 63, 124}); slot.Messages[62] != want {
		t.Errorf("the last is %+v, want %+v", slot.Messages[62], want)
	}
	for _, life := range []LifeRecord{
		{Act: ActSplit, Stage: StageEnd},
		{Stage: StageEnd, Code: lifecycle.CodeTimeout},
		{Act: ActDestroy, Stage: StageStart},
		{Act: ActDestroy, Stage: StageEnd},
	} {
		c.Life(life)
	}
	other.Life(LifeRecord{Act: ActDestroy, Stage: StageEnd})
	c.Close()
	next := w.Comm(CommInfo{ID: lifecycle.CommID{3}, Size: 99})
	next.Messages(5, 1, 0)
	if slot = r.Slots()[0]; slot.Messages[0] != (PeerMessages{5, 1, 0}) || slot.Messages[1] != (PeerMessages{}) {
		t.Errorf("the next owner's are %+v", slot.Messages[:2])
	}
	var counts []int
	for ev, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if ev.IsLife {
			counts = append(counts, len(ev.Life.Messages))
		}
	}
	if diff := cmp.Diff([]int{0, 63, 0, 63, 0}, counts); diff != "" {
		t.Errorf("counts on records (-want +got):\n%s", diff)
	}
}

// Communicators that come and go use the slots with counts of messages again.
func TestMessagesInOldSlots(t *testing.T) {
	w := newTape(t, Config{Slots: defaultSlots})
	r := openTape(t, w.Path())
	kept := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Size: 2})
	for i := range 2 * defaultCounted {
		c := w.Comm(CommInfo{ID: lifecycle.CommID{2}, Size: 2})
		if slots := r.Slots(); len(slots) != 2 || !slots[1].Counted {
			t.Fatalf("the messages of communicator %d are not counted", i)
		}
		c.Close()
	}
	kept.Close()
}
