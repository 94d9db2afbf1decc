package ccl

import (
	"context"
	"runtime"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// withTape makes a communicator that can only record operations.
func withTape(tb testing.TB) (*Comm, *tape.Writer) {
	tb.Helper()
	w, err := tape.Create(tape.Config{Dir: tb.TempDir()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = w.Close() })
	return &Comm{core: &core{tape: w.Comm(tape.CommInfo{ID: lifecycle.CommID{1}, Size: 4})}}, w
}

// spanned makes a context within a span, as OpenTelemetry does.
func spanned(ctx context.Context) context.Context { return within(ctx, 4) }

// within makes a context within the span whose id ends in the given byte.
func within(ctx context.Context, id byte) context.Context {
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1, 15: 2}, SpanID: trace.SpanID{3, 7: id}, TraceFlags: trace.FlagsSampled,
	}))
}

var sum = tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 8}

// TestOperationKnowsItsCaller checks that the span in the context of a call is on the tape, and no span if there is
// none.
func TestOperationKnowsItsCaller(t *testing.T) {
	c, w := withTape(t)
	for _, ctx := range []context.Context{spanned(t.Context()), t.Context()} {
		launched := c.started(ctx, tape.Now(), 0, &sum, 1)
		c.tape.Wait(1) // only then is a start without a caller recorded
		c.tape.End(launched, lifecycle.CodeOK)
	}
	r, err := tape.Open(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	var callers []tape.SpanContext
	for ev, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if !ev.IsLife && ev.Op.Stage == tape.StageStart {
			callers = append(callers, ev.Op.Caller)
		}
	}
	want := tape.SpanContext{TraceID: [16]byte{1, 15: 2}, SpanID: [8]byte{3, 7: 4}, Flags: 1}
	if len(callers) != 2 || callers[0] != want || callers[1] != (tape.SpanContext{}) {
		t.Errorf("callers are %v, want %v and none", callers, want)
	}
	ctx := spanned(t.Context())
	operation := func() { c.tape.End(c.started(ctx, tape.Now(), 0, &sum, 1), lifecycle.CodeOK) }
	if n := testing.AllocsPerRun(100, operation); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// slicedContext can't be compared with ==: that panics.
type slicedContext struct {
	context.Context
	_ []int
}

// reused is a context whose values change, as that of a server with a pool of contexts may.
type reused struct{ context.Context }

// Whatever the contexts are, and in whatever order, each operation gets the span of its own context.
func TestLastCaller(t *testing.T) {
	one, other, pooled := within(t.Context(), 1), within(t.Context(), 2), &reused{}
	contexts := []struct {
		context.Context
		id byte // 0 means no span
	}{
		{one, 1},
		{other, 2},
		{slicedContext{Context: one}, 1},
		{slicedContext{Context: other}, 2},
		{within(one, 3), 3},
		{t.Context(), 0},
		{context.Background(), 0},
		{slicedContext{Context: t.Context()}, 0},
		{trace.ContextWithSpanContext(one, trace.SpanContext{}), 0},
	}
	var l lastCaller
	check := func(ctx context.Context, id byte) {
		t.Helper()
		switch span := l.of(ctx); {
		case span == nil && id != 0:
			t.Errorf("%v: no span, want %d", ctx, id)
		case span != nil && span.SpanID[7] != id:
			t.Errorf("%v: span %v, want %d", ctx, span.SpanID, id)
		}
	}
	for _, a := range contexts {
		for _, b := range contexts {
			for _, c := range contexts[:3] {
				check(a.Context, a.id)
				check(b.Context, b.id)
				check(c.Context, c.id)
				pooled.Context = a.Context
				check(pooled, a.id)
				pooled.Context = b.Context
				check(pooled, b.id)
			}
		}
	}
}

// cpuTime measures the CPU time of f on its thread: on a shared machine, the wall clock would also measure other
// programs.
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

// BenchmarkStarted measures an operation's start and end on the tape, without a span in its context and with one.
func BenchmarkStarted(b *testing.B) {
	type key struct{}
	plain := context.WithValue(context.Background(), key{}, 1)
	for name, ctx := range map[string]context.Context{"plain": plain, "spanned": spanned(plain)} {
		b.Run(name, func(b *testing.B) {
			c, _ := withTape(b)
			cpuTime(b, func() { c.tape.End(c.started(ctx, tape.Now(), 0, &sum, 1), lifecycle.CodeOK) })
		})
	}
	b.Run("unasked", func(b *testing.B) { // as if contexts were not checked
		c, _ := withTape(b)
		cpuTime(b, func() { c.tape.End(c.tape.Start(0, sum, 1), lifecycle.CodeOK) })
	})
}
