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

// What is on a page is what was written: operations like the one before, of other sizes, kinds, peers and numbers, short and long ones.
func TestPageRoundTrip(t *testing.T) {
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
				Stage: StageEnd, Seq: number, Signature: sig, Algorithm: uint8(200 + i), Wait: -1, Tallied: true, Ordinary: true,
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

// Times that don't fit into a short item are there in full.
func TestPageLongTimes(t *testing.T) {
	w := ordinaryTape(t, 128)
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "world", Size: 4})
	at := Now()
	type span struct{ Start, Took int64 }
	var want []span
	for i, next := range []span{{1, 5}, {1, 6}, {maxShort, 7}, {maxShort + 1, 8}, {10, maxShort - 1}, {maxShort - 1, maxShort}, {3 * maxShort, 0}} {
		at += next.Start
		c.putOrdinary(c.op.kindOf(&allReduce, 1), uint64(i+1), at, at+next.Took)
		want = append(want, span{at, next.Took})
	}
	items, err := openTape(t, w.Path()).readPages()
	if err != nil {
		t.Fatal(err)
	}
	got := make([]span, len(want))
	for _, o := range items.items {
		got[o.number-1] = span{o.start, o.end - o.start}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
}

// A communicator that rested while others went round the ring begins a page, and what is lost is counted.
func TestPageOvertaken(t *testing.T) {
	w := ordinaryTape(t, 128) // 4 pages
	rests := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "rests", Size: 2})
	busy := w.Comm(CommInfo{ID: lifecycle.CommID{2}, Name: "busy", Size: 2})
	one := func(c *CommWriter) { c.End(c.Start(0, allReduce, 1), 0) }
	written := 0
	for laps := range 3 {
		one(rests)
		for range 57 * (laps + 2) {
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

// A writer that stores a lap too late, on a page that is another's by now, makes no operation of it.
func TestPageStoredTooLate(t *testing.T) {
	w := ordinaryTape(t, 128) // 4 pages
	late := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "late", Size: 2})
	busy := w.Comm(CommInfo{ID: lifecycle.CommID{2}, Name: "busy", Size: 2})
	late.End(late.Start(0, allReduce, 1), 0)
	index := func(c *CommWriter) uint64 { return c.page.words[recMarker] >> 32 }
	held, used, heldIndex := late.page, late.op.pageUsed, index(late)
	for late.page.words != busy.page.words || busy.op.pageUsed <= used {
		busy.End(busy.Start(0, allReduce, 1), 0)
	}
	const before, took = 12345, 678
	held.words[used] = before<<32 | held.lap | took
	items, err := openTape(t, w.Path()).readPages()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range items.items {
		if o.end-o.start == took {
			t.Errorf("operation %d of %+v is read", o.number, items.kinds[o.kind])
		}
	}
	busy.turnPage(busy.op.kindOf(&allReduce, 1), 1, Now(), Now())
	if busy.page.lap != lapBit(index(busy), 4) || held.lap == lapBit(heldIndex+4, 4) {
		t.Errorf("pages %d and %d have the laps %x and %x", heldIndex, index(busy), held.lap, busy.page.lap)
	}
}

// Who reads history while pages are begun anew under it reads no operation that wasn't.
func TestPageWhileWriting(t *testing.T) {
	w := ordinaryTape(t, 256) // 8 pages
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
			if op := ev.Op; op.Signature.Bytes != uint64(n)<<20 || op.Algorithm != uint8(n) || op.Seq <= before.Seq || op.Start < before.Time {
				t.Fatalf("communicator %d: %+v behind %+v", n, op, before)
			}
			last[n] = ev.Op
		}
	}
	if reads < 2 {
		t.Errorf("read %d times", reads)
	}
}

// Who reads history of a tape on which nothing is lost misses nothing, but for an operation that is being written.
func TestPageMissesNothing(t *testing.T) {
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
