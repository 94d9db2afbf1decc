package tape

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
)

var allReduce = Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 8}

// cpuTime measures the CPU time of f's thread: on a shared machine, the wall clock also measures other programs.
func cpuTime(b *testing.B, f func()) {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	spent := func() int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
			b.Fatal(err)
		}
		return ts.Nano()
	}
	b.ReportAllocs()
	before := spent()
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(spent()-before)/float64(b.N), "cpu-ns/op")
}

// The budget: 100 ns, no allocation.
func BenchmarkStartEnd(b *testing.B) {
	c := newTape(b, Config{SampleEvery: DefaultSampleEvery}).Comm(CommInfo{ID: lifecycle.CommID{1}, Size: 4})
	cpuTime(b, func() { c.End(c.Start(0, allReduce, 1), 0) })
}

// The budget of an operation that is called within a span: 150 ns, no allocation.
func BenchmarkStartEndCaller(b *testing.B) {
	c := newTape(b, Config{SampleEvery: DefaultSampleEvery}).Comm(CommInfo{ID: lifecycle.CommID{1}, Size: 4})
	caller := SpanContext{TraceID: [16]byte{1}, SpanID: [8]byte{2}, Flags: 1}
	cpuTime(b, func() { c.End(c.StartFrom(Now(), &caller, 0, &allReduce, 1), 0) })
}

func BenchmarkWait(b *testing.B) {
	c := newTape(b, Config{SampleEvery: DefaultSampleEvery}).Comm(CommInfo{ID: lifecycle.CommID{1}, Size: 4})
	c.Start(0, allReduce, 1)
	peer := int32(0)
	cpuTime(b, func() { peer ^= 1; c.Wait(peer) })
}

func BenchmarkOff(b *testing.B) {
	var c *CommWriter
	cpuTime(b, func() { c.End(c.Start(0, allReduce, 1), 0) })
}

// BenchmarkStartEnd includes two of these.
func BenchmarkNow(b *testing.B) {
	cpuTime(b, func() { Now() })
}

func BenchmarkLife(b *testing.B) {
	c := newTape(b, Config{SampleEvery: DefaultSampleEvery}).Comm(CommInfo{ID: lifecycle.CommID{1}, Size: 4})
	r := LifeRecord{
		Act: ActSplit, Stage: StageEnd, Peer: -1, Site: lifecycle.Caller(""),
		Caller: SpanContext{TraceID: [16]byte{1}},
	}
	cpuTime(b, func() { c.Life(r) })
}

// Communicators share the op ring's head, and that cache line is what this measures.
func BenchmarkStartEndParallel(b *testing.B) {
	w := newTape(b, Config{SampleEvery: DefaultSampleEvery})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Size: 4})
		for pb.Next() {
			c.End(c.Start(0, allReduce, 1), 0)
		}
	})
}

// One record of a full tape.
func BenchmarkEvents(b *testing.B) {
	w := newTape(b, Config{SampleEvery: DefaultSampleEvery})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "world", Size: 4})
	for range defaultOpRecords {
		c.End(c.Start(0, allReduce, 1), 0)
	}
	r := openTape(b, w.Path())
	records := 0
	cpuTime(b, func() {
		for _, err := range r.Events() {
			if err != nil {
				b.Fatal(err)
			}
			records++
		}
	})
	b.ReportMetric(float64(b.Elapsed())/float64(records), "ns/record")
}

// One record, as a follower in the same process gets it, in batches.
func BenchmarkFollow(b *testing.B) {
	const batch = defaultOpRecords / 8
	w := newTape(b, Config{})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "world", Size: 4})
	f := follow(b, w.Path(), 1) // it never sleeps for long
	events := make([]Event, 512)
	b.ReportAllocs()
	for left := 0; b.Loop(); left-- {
		if left > 0 {
			continue
		}
		b.StopTimer()
		for range batch {
			c.End(c.Start(0, allReduce, 1), 0)
		}
		b.StartTimer()
		for left < batch {
			n, err := f.Read(b.Context(), events)
			if err != nil {
				b.Fatal(err)
			}
			left += n
		}
	}
	if m := f.Missed(); m != (Missed{}) {
		b.Errorf("missed %+v", m)
	}
}
