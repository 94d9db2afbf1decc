package tape

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
)

// ordinaryTape has no operations for followers but those that wait.
func ordinaryTape(t testing.TB, opRecords int) *Writer {
	t.Helper()
	return newTape(t, Config{OpRecords: opRecords, SampleEvery: -1})
}

// What is on the ordinary ring is what was written: operations like the one before, of other sizes, kinds, peers and
// numbers.
func TestOrdinaryRoundTrip(t *testing.T) {
	w := ordinaryTape(t, 1024)
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "world", Size: 4, Engine: "host"})
	send := Signature{Call: lifecycle.CallSend, DataType: 3, Peer: 2, Bytes: 5}
	back := send
	back.Peer = 0
	reduce := Signature{Call: lifecycle.CallReduce, DataType: 7, Reduction: 2, Peer: 1, Bytes: 1 << 40}
	var want []OpRecord
	number := uint64(0)
	for i, sig := range []Signature{allReduce, allReduce, allReduce, send, back, back, reduce, reduce, allReduce, send} {
		for range 20 {
			number++
			if i == 4 {
				number += 3
			}
			c.End(c.Start(number, sig, uint8(200+i)), 0)
			want = append(want, OpRecord{
				Stage: StageEnd, Seq: number, Signature: sig, Algorithm: uint8(200 + i), Wait: -1, Tallied: true,
				Ordinary: true,
			})
		}
	}
	var got []OpRecord
	last := int64(0)
	for _, ev := range all(t, openTape(t, w.Path())) {
		if ev.IsLife {
			continue
		}
		if ev.Comm.Name != "world" || ev.Op.Start < last || ev.Op.Time < ev.Op.Start || ev.Op.Time > Now() {
			t.Errorf("operation %d of %+v from %d to %d, after %d", ev.Op.Seq, ev.Comm, ev.Op.Start, ev.Op.Time, last)
		}
		last = ev.Op.Time
		ev.Op.Time, ev.Op.Start = 0, 0
		got = append(got, ev.Op)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}

// A communicator that rested while others went round the ring reserves anew, and what is lost is counted.
func TestOrdinaryOvertaken(t *testing.T) {
	w := ordinaryTape(t, 128)
	rests := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "rests", Size: 2})
	busy := w.Comm(CommInfo{ID: lifecycle.CommID{2}, Name: "busy", Size: 2})
	one := func(c *CommWriter) { c.End(c.Start(0, allReduce, 1), 0) }
	written := 0
	for laps := range 3 {
		one(rests)
		for range 64 * (laps + 2) {
			one(busy)
			written++
		}
	}
	one(rests)
	written += 4
	r := openTape(t, w.Path())
	seen := map[string][]uint64{}
	read := 0
	for _, ev := range all(t, r) {
		if !ev.IsLife {
			seen[ev.Comm.Name] = append(seen[ev.Comm.Name], ev.Op.Seq)
			read++
		}
	}
	if n := len(seen["rests"]); n == 0 || seen["rests"][n-1] != 4 {
		t.Errorf("of the one that rests there are %v", seen["rests"])
	}
	for i, seq := range seen["busy"] {
		if first := seen["busy"][0]; seq != first+uint64(i) {
			t.Fatalf("operation %d is at %d behind %d", seq, i, first)
		}
	}
	if missed := r.Missed().Op; read+int(missed) != written || missed == 0 {
		t.Errorf("read %d and missed %d of %d", read, missed, written)
	}
}

// A writer that stores a lap too late, at a place that is another's by now, makes no operation of it.
func TestOrdinaryStoredTooLate(t *testing.T) {
	w := ordinaryTape(t, 128)
	late := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "late", Size: 2})
	busy := w.Comm(CommInfo{ID: lifecycle.CommID{2}, Name: "busy", Size: 2})
	late.End(late.Start(0, allReduce, 1), 0)
	const took = 678
	held, at := late.op.ordinary, Now()
	for busy.op.ordinary < held+128 {
		busy.End(busy.Start(0, allReduce, 1), 0)
	}
	p := pending{number: 2, start: at, kinds: packKinds(&allReduce, 1), bytes: allReduce.Bytes, peer: allReduce.Peer}
	late.put(&w.ordinaryRing, held, kindOrdinary, &p, at+took, StageEnd, PhaseNone, -1, 0)
	for _, ev := range all(t, openTape(t, w.Path())) {
		if !ev.IsLife && ev.Comm.Name == "late" && ev.Op.Time-ev.Op.Start == took {
			t.Errorf("operation %d of %+v is read", ev.Op.Seq, ev.Comm)
		}
	}
}

// A reader of history that is overwritten under it reads no operation that wasn't.
func TestOrdinaryWhileWriting(t *testing.T) {
	w := ordinaryTape(t, 256)
	done := make(chan struct{})
	go func() {
		defer close(done)
		comms := [3]*CommWriter{}
		for i := range comms {
			comms[i] = w.Comm(CommInfo{ID: lifecycle.CommID{byte(i + 1)}, Name: "world", Size: 4})
		}
		sig := allReduce
		for begin := time.Now(); time.Since(begin) < 200*time.Millisecond; {
			for i, c := range comms {
				sig.Bytes = uint64(i+1) << 20
				c.End(c.Start(0, sig, uint8(i+1)), 0)
			}
		}
	}()
	r := openTape(t, w.Path())
	reads := 0
	for running := true; running; reads++ {
		select {
		case <-done:
			running = false
		default:
		}
		last := map[uint32]OpRecord{}
		for _, ev := range all(t, r) {
			if ev.IsLife {
				continue
			}
			n, before := ev.Generation, last[ev.Generation]
			op := ev.Op
			if op.Signature.Bytes != uint64(n)<<20 || op.Algorithm != uint8(n) || op.Seq <= before.Seq ||
				op.Start < before.Time {
				t.Fatalf("communicator %d: %+v behind %+v", n, op, before)
			}
			last[n] = ev.Op
		}
	}
	if reads < 2 {
		t.Errorf("read %d times", reads)
	}
}

// A reader of history of a tape on which nothing is lost misses nothing, but for an operation that is being written.
func TestOrdinaryMissesNothing(t *testing.T) {
	for name, every := range map[string]int{"ordinary": -1, "sampled": 1} {
		w := newTape(t, Config{SampleEvery: every})
		r := openTape(t, w.Path())
		done := make(chan struct{})
		go func() {
			defer close(done)
			c := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "world", Size: 4})
			for range defaultOpRecords / 2 {
				c.End(c.Start(0, allReduce, 1), 0)
			}
		}()
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
			}
			all(t, r)
			if missed := r.Missed().Op; missed > 1 || missed > 0 && !running {
				t.Fatalf("%s: missed %d", name, missed)
			}
		}
	}
}
