package tape

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
)

// counted reads a tape's tallies.
func countedOn(t testing.TB, path string) []Tally {
	t.Helper()
	tallies, err := openTape(t, path).AppendTallies(nil)
	if err != nil {
		t.Fatal(err)
	}
	return tallies
}

// Values on and beside the bounds fall into the bucket that the bound names.
func TestBuckets(t *testing.T) {
	for i := range DurationBuckets - 1 {
		bound := DurationBound(i)
		if on, above := DurationBucket(bound), DurationBucket(bound+1); on != i || above != i+1 {
			t.Errorf("%v is in bucket %d and what is longer in %d, want %d and the next", bound, on, above, i)
		}
	}
	if got := DurationBucket(0); got != 0 {
		t.Errorf("nothing is in bucket %d", got)
	}
	if got := DurationBucket(math.MaxInt64); got != DurationBuckets-1 {
		t.Errorf("the longest is in bucket %d", got)
	}
	for i := range BandwidthBuckets - 1 {
		bound := BandwidthBound(i)
		if on, above := BandwidthBucket(bound), BandwidthBucket(math.Nextafter(bound, math.Inf(1))); on != i ||
			above > i+1 {
			t.Errorf("%v is in bucket %d and what is more in %d, want %d and the next", bound, on, above, i)
		}
		if above := BandwidthBucket(1.001 * bound); above != i+1 {
			t.Errorf("what is more than %v is in bucket %d, want %d", bound, above, i+1)
		}
	}
	for bw, want := range map[float64]int{1: 0, 1e30: BandwidthBuckets - 1, math.Inf(1): BandwidthBuckets - 1} {
		if got := BandwidthBucket(bw); got != want {
			t.Errorf("%v is in bucket %d, want %d", bw, got, want)
		}
	}
	for bytes, want := range map[uint64]uint8{
		0: 0, 1: 0, 2: 1, 4: 1, 5: 2, 1 << 10: 5, 1<<10 + 1: 6, 1 << 62: 31, 1<<62 + 1: 32, math.MaxUint64: 32,
	} {
		if got := SizeClass(bytes); got != want {
			t.Errorf("%d bytes are of class %d, want %d", bytes, got, want)
		}
	}
}

// All operations that end well are counted, whichever ring has them, and those that waited or were slow separately.
// Followers see only what the tallies don't show.
func TestTallies(t *testing.T) {
	w := newTape(t, Config{Job: "job", Host: "host", SampleEvery: 8, Slow: time.Hour})
	f := follow(t, w.Path(), 0)
	id := lifecycle.CommID{7}
	c := w.Comm(CommInfo{ID: id, Name: "rails", Rank: 1, Size: 4, Engine: "host"})
	sig := Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1000}
	const quick = 100
	var sampled, seen []uint64
	for range quick {
		seq := c.Start(0, sig, 1)
		passes(c)
		c.End(seq, 0)
		if Sampled(id, seq, 8) {
			sampled = append(sampled, seq)
		}
	}
	waited := c.Start(0, sig, 1)
	c.Wait(3)
	passes(c)
	c.End(waited, 0)
	failed := c.Start(0, sig, 1)
	c.End(failed, lifecycle.CodeTimeout)
	act := c.Start(0, Signature{Call: lifecycle.CallSplit, Bytes: 8}, 1) // a split's own exchange
	c.End(act, 0)
	w.slow = 0 // all that follow
	slow := c.Start(0, sig, 1)
	passes(c)
	c.End(slow, 0)

	type end struct {
		Seq               uint64
		Tallied, Ordinary bool
	}
	var ends, want []end
	for len(ends) < len(sampled)+4 {
		ev, err := f.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ev.Op.Stage == StageEnd {
			ends = append(ends, end{ev.Op.Seq, ev.Op.Tallied, ev.Op.Ordinary})
			seen = append(seen, ev.Op.Seq)
		}
	}
	for _, seq := range sampled {
		want = append(want, end{seq, true, true})
	}
	want = append(want, end{waited, true, false}, end{failed, false, false}, end{act, false, false},
		end{slow, true, false})
	if diff := cmp.Diff(want, ends); diff != "" {
		t.Errorf("ends that a follower sees (-want +got):\n%s", diff)
	}
	if len(seen) > 30 {
		t.Errorf("a follower sees %d of %d", len(seen), quick)
	}

	tallies := countedOn(t, w.Path())
	if len(tallies) != 1 {
		t.Fatalf("%d tallies", len(tallies))
	}
	got := tallies[0]
	bandwidths := uint64(0)
	for _, n := range got.Bandwidths {
		bandwidths += n
	}
	if got.Count() != quick+2 || bandwidths != quick+2 || got.Ordinary != quick || got.Bytes != (quick+2)*1000 {
		t.Errorf("counted %d, %d bandwidths, %d ordinary of %d bytes: %+v", got.Count(), bandwidths, got.Ordinary,
			got.Bytes, got)
	}
	if got.OrdinaryTime <= 0 || got.Time <= got.OrdinaryTime || got.Bandwidth <= 0 {
		t.Errorf("times %v and %v, bandwidth %v", got.OrdinaryTime, got.Time, got.Bandwidth)
	}
	if got.Name != "rails" || got.Engine != "host" || got.Call != lifecycle.CallAllReduce || got.SizeClass != 5 {
		t.Errorf("it counts %+v", got)
	}

	// The same, through a C compiler's layout.
	b, err := os.ReadFile(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	h := (*cHeader)(unsafe.Pointer(&b[0]))
	raw := (*cTally)(unsafe.Pointer(&b[headerSize+defaultSlots*slotSize]))
	if h.tallyHead != 1 || string(getText(raw.name[:])) != "rails" || raw.call != uint8(lifecycle.CallAllReduce) ||
		raw.sizeClass != 5 ||
		raw.ordinary != quick || raw.durations != got.Durations || raw.bandwidth*1e6 != got.Bandwidth {
		t.Errorf("%d tallies on the file, the first is %+v", h.tallyHead, raw)
	}
	const perPage = pageWords - recordWords + 1 // and those behind a sampled one are longer
	if want := uint64(quick-len(sampled))/perPage + 1; h.ordinaryHead < want || h.ordinaryHead > want+2 {
		t.Errorf("%d pages of ordinary operations, want %d", h.ordinaryHead, want)
	}
}

// A tally outlives its communicator: the next one of its name continues it. A communicator with another name does not,
// nor one that is live at the same time.
func TestTalliesStay(t *testing.T) {
	w := newTape(t, Config{SampleEvery: -1})
	make1 := func(name string) *CommWriter {
		return w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: name, Size: 2, Engine: "host"})
	}
	one := func(c *CommWriter) { c.End(c.Start(0, allReduce, 1), 0) }
	first := make1("world")
	one(first)
	second := make1("world")
	one(second)
	first.Close()
	one(first) // late
	third := make1("world")
	one(third)
	third.Describe(CommInfo{ID: lifecycle.CommID{1}, Name: "rails", Size: 2, Engine: "host"})
	one(third)
	fourth := make1("world")
	one(fourth)
	var got []string
	for _, tally := range countedOn(t, w.Path()) {
		got = append(got, fmt.Sprintf("%d %s %d", tally.Index, tally.Name, tally.Count()))
	}
	if diff := cmp.Diff([]string{"0 world 3", "1 world 1", "2 rails 1"}, got); diff != "" {
		t.Errorf("tallies (-want +got):\n%s", diff)
	}
	untallied := 0
	for _, ev := range all(t, openTape(t, w.Path())) {
		if !ev.IsLife && !ev.Op.Tallied && ev.Op.Stage == StageEnd {
			untallied++
		}
	}
	if untallied != 1 {
		t.Errorf("%d operations are for readers to count, want the one after its communicator's end", untallied)
	}
}

// If there are more kinds of operations than tallies, followers count the rest, and none is counted twice.
func TestTalliesFull(t *testing.T) {
	w := newTape(t, Config{Tallies: 3, SampleEvery: -1})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "world", Size: 2})
	const rounds, kinds = 10, 8
	for range rounds {
		for class := range kinds {
			sig := allReduce
			sig.Bytes = 1 << (2 * class)
			c.End(c.Start(0, sig, 1), 0)
		}
	}
	counted := uint64(0)
	for _, tally := range countedOn(t, w.Path()) {
		counted += tally.Count()
	}
	tallied, untallied := uint64(0), 0
	for _, ev := range all(t, openTape(t, w.Path())) {
		switch {
		case ev.IsLife:
		case ev.Op.Tallied:
			tallied++
		case ev.Op.Stage == StageEnd:
			untallied++
		}
	}
	if counted != 3*rounds || tallied != counted || untallied != (kinds-3)*rounds {
		t.Errorf("%d are counted, records say %d are and %d are not; want %d and %d", counted, tallied, untallied,
			3*rounds, (kinds-3)*rounds)
	}
}

// A reader gets the ordinary operations between all others, each after what its communicator did before.
func TestHistoryInOrder(t *testing.T) {
	w := newTape(t, Config{SampleEvery: 4})
	comms := make([]*CommWriter, 3)
	for i := range comms {
		comms[i] = w.Comm(CommInfo{ID: lifecycle.CommID{byte(i + 1)}, Name: "world", Size: 2})
	}
	const rounds = 200
	for n := range uint64(rounds) {
		for i, c := range comms {
			seq := c.Start(0, allReduce, 1)
			if (int(n)+i)%5 == 0 {
				c.Wait(1)
			}
			c.End(seq, 0)
			if (int(n)+i)%7 == 0 {
				c.Life(LifeRecord{Act: ActSplit, Stage: StageEnd, Seq: seq, Peer: -1})
			}
		}
	}
	last := make(map[uint32]uint64)
	for _, ev := range all(t, openTape(t, w.Path())) {
		n := last[ev.Generation]
		switch {
		case ev.IsLife && ev.Life.Seq != n:
			t.Fatalf("communicator %d: the act behind operation %d comes behind %d", ev.Generation, ev.Life.Seq, n)
		case ev.IsLife:
		case ev.Op.Stage == StageEnd && ev.Op.Seq != n+1, ev.Op.Stage == StageWait && ev.Op.Seq != n+1:
			t.Fatalf("communicator %d: %v of operation %d comes behind %d", ev.Generation, ev.Op.Stage, ev.Op.Seq, n)
		case ev.Op.Stage == StageEnd:
			last[ev.Generation] = ev.Op.Seq
		}
	}
	for i := range comms {
		if last[uint32(i+1)] != rounds {
			t.Errorf("communicator %d came to operation %d", i+1, last[uint32(i+1)])
		}
	}
}

// A reader sees counters that only grow while a communicator writes, and all operations in the end.
func TestTalliesWhileWriting(t *testing.T) {
	w := newTape(t, Config{SampleEvery: -1})
	r := openTape(t, w.Path())
	const ops = 50_000
	done := make(chan struct{})
	go func() {
		defer close(done)
		c := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "world", Size: 2})
		for range ops {
			c.End(c.Start(0, allReduce, 1), 0)
		}
	}()
	var last Tally
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		tallies, err := r.AppendTallies(nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(tallies) == 0 {
			continue
		}
		if now := tallies[0]; now.Count() < last.Count() || now.Time < last.Time || now.Bytes < last.Bytes {
			t.Fatalf("from %+v to %+v", last, now)
		}
		last = tallies[0]
	}
	if last.Count() != ops || last.Ordinary != ops || last.Bytes != 8*ops {
		t.Errorf("counted %+v", last)
	}
}

// TestTallyCorrupt: a corrupt tally is left out and reported, and those behind it are read.
func TestTallyCorrupt(t *testing.T) {
	w := newTape(t, Config{})
	for _, name := range []string{"first", "second", "third"} {
		c := w.Comm(CommInfo{ID: lifecycle.CommID{name[0]}, Name: name, Size: 2})
		c.End(c.Start(0, allReduce, 1), 0)
	}
	b, err := os.ReadFile(w.Path())
	must(t, err)
	tallies, err := openTape(t, w.Path()).AppendTallies(nil)
	if err != nil || len(tallies) != 3 {
		t.Fatalf("%d tallies, %v", len(tallies), err)
	}
	path := filepath.Join(t.TempDir(), "x.tape")
	b[openTape(t, w.Path()).geo.tallyOffset()+int64(tallies[1].Index)*tallySize]++
	must(t, os.WriteFile(path, b, 0o600))
	tallies, err = openTape(t, path).AppendTallies(nil)
	var format *FormatError
	if !errors.As(err, &format) || !strings.Contains(format.Problem, "tally 1") {
		t.Errorf("the error is %v", err)
	}
	if len(tallies) != 2 || tallies[0].Name != "first" || tallies[1].Name != "third" {
		t.Errorf("read %+v", tallies)
	}
}

// A tally with inconsistent words, being written or corrupt, doesn't cause a wrong count of lost operations.
func TestTallyTorn(t *testing.T) {
	b := sample(t)
	path := filepath.Join(t.TempDir(), "x.tape")
	binary.LittleEndian.PutUint64(b[headerSize+2*slotSize+tallySampled:], 1<<40)
	must(t, os.WriteFile(path, b, 0o600))
	r := openTape(t, path)
	if n := len(all(t, r)); r.Missed().Op > 1000 {
		t.Errorf("missed %d, and read %d", r.Missed().Op, n)
	}
}

// passes lets some time pass in the operation in flight: counters may tick only every 10 ns, and an operation that took
// no time has no bandwidth.
func passes(c *CommWriter) {
	for Now() == c.Began() {
	}
}

func TestAddTally(t *testing.T) {
	a := Tally{Bytes: math.MaxUint64 - 1, Time: math.MaxInt64 - 1, OrdinaryTime: 1, Ordinary: 2, Bandwidth: 3}
	a.Durations[1], a.Bandwidths[2] = 4, 5
	sum := a
	sum.Add(&a)
	want := Tally{Bytes: math.MaxUint64, Time: math.MaxInt64, OrdinaryTime: 2, Ordinary: 4, Bandwidth: 6}
	want.Durations[1], want.Bandwidths[2] = 8, 10
	if sum != want {
		t.Errorf("%+v, want %+v", sum, want)
	}
}
