package tape

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
)

// ordinaryTape gives followers only the operations that wait.
func ordinaryTape(t testing.TB, opRecords int) *Writer {
	t.Helper()
	return newTape(t, Config{OpRecords: opRecords, SampleEvery: -1})
}

// A page gives back what was written: operations like the one before, and of other sizes, kinds, peers and numbers.
func TestPageRoundTrip(t *testing.T) {
	w := ordinaryTape(t, 1024)
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "world", Size: 4, Engine: "host"})
	send := Signature{Call: lifecycle.CallSend, DataType: 3, Peer: 2, Bytes: 5}
	back := send
	back.Peer = 0
	reduce := Signature{Call: lifecycle.CallReduce, DataType: 7, Reduction: 2, Peer: 1, Bytes: 1 << 40}
	var want []OpRecord
	number := uint64(0)
	for i, sig := range []Signature{
		allReduce, allReduce, allReduce, send, back, back, reduce, reduce, allReduce, send,
	} {
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

// Times that don't fit into a word are kept in a record.
func TestPageLongTimes(t *testing.T) {
	w := ordinaryTape(t, 128)
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "world", Size: 4})
	c.End(c.Start(0, allReduce, 1), 0)
	p := pending{
		number: 1, start: Now(), kinds: packKinds(&allReduce, 1), bytes: allReduce.Bytes, peer: allReduce.Peer,
	}
	type span struct{ Start, Took int64 }
	var want, got []span
	for _, next := range []span{
		{1, 5}, {0, 6}, {1<<32 - 1, 7}, {1 << 32, 8}, {10, maxRepeat}, {1, maxRepeat + 1}, {3 << 32, 0},
	} {
		p.number++
		p.start += next.Start
		if !c.putOrdinary(&p, p.start+next.Took) {
			t.Fatal("no page")
		}
		want = append(want, span{p.start, next.Took})
	}
	records, _, err := openTape(t, w.Path()).ordinary()
	must(t, err)
	got = make([]span, len(records))
	for _, r := range records {
		got[r[recSeq]-1] = span{int64(r[recStart]), int64(r[recTime] - r[recStart])}
	}
	if diff := cmp.Diff(want, got[1:]); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
	if used, want := c.op.pageUsed, uint32(4*recordWords+4); used != want {
		t.Errorf("they have %d words of the page, want %d", used, want)
	}
}

// numbersOf returns the operations of each communicator, by its name, as a reader of history finds them.
func numbersOf(t *testing.T, r *Reader) (numbers map[string][]uint64, read int) {
	t.Helper()
	numbers = map[string][]uint64{}
	for _, ev := range all(t, r) {
		if !ev.IsLife {
			numbers[ev.Comm.Name] = append(numbers[ev.Comm.Name], ev.Op.Seq)
			read++
		}
	}
	return numbers, read
}

// An idle communicator keeps its page while others go round the ring; what they overwrite is counted.
func TestPageKept(t *testing.T) {
	w := ordinaryTape(t, 128) // 4 pages
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
	seen, read := numbersOf(t, r)
	if diff := cmp.Diff([]uint64{1, 2, 3, 4}, seen["rests"]); diff != "" {
		t.Errorf("of the one that rests (-want +got):\n%s", diff)
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

// A communicator that gets no page writes to the op ring, until another one gives up its page.
func TestPageNone(t *testing.T) {
	w := ordinaryTape(t, 128) // 4 pages
	var comms []*CommWriter
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		c := w.Comm(CommInfo{ID: lifecycle.CommID{byte(i + 1)}, Name: name, Size: 2})
		for range 3 {
			c.End(c.Start(0, allReduce, 1), 0)
		}
		comms = append(comms, c)
	}
	onRing := func() uint64 { return *w.opRing.head }
	if n := onRing(); n != 3 {
		t.Errorf("%d operations are on the op ring, want 3", n)
	}
	comms[1].Close()
	for range 3 {
		comms[4].End(comms[4].Start(0, allReduce, 1), 0)
	}
	if n := onRing(); n != 3 {
		t.Errorf("%d operations are on the op ring, and there was a page", n)
	}
	r := openTape(t, w.Path())
	first := []uint64{1, 2, 3}
	want := map[string][]uint64{"a": first, "c": first, "d": first, "e": {1, 2, 3, 4, 5, 6}}
	if seen, _ := numbersOf(t, r); !cmp.Equal(seen, want) || r.Missed().Op != 3 {
		t.Errorf("read %v, want %v; missed %d, want those of the page that was overwritten", seen, want, r.Missed().Op)
	}
}

// A reader of history reads no operation that never was, even if pages are started anew meanwhile.
func TestPageWhileWriting(t *testing.T) {
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

// A reader of history of a tape on which nothing is lost misses nothing, except an operation that is being written.
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
