package node

import (
	"cmp"
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestBusy lets a process compute for an hour and then sleep: after the shortest sleep after which a verdict names it,
// it is not reported as computing.
func TestBusy(t *testing.T) {
	for _, stall := range []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, 5 * time.Second} {
		named := time.Hour + min(cmp.Or(stall, busySpan), busySpan)
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			b := newBusy(func() time.Duration { return min(time.Since(began), time.Hour) }, stall)
			ctx, cancel := context.WithCancel(t.Context())
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				b.run(ctx)
			}()
			for _, c := range []struct {
				after time.Duration
				want  string
			}{
				{10 * time.Millisecond, ""},
				{1100 * time.Millisecond, "it computes (1.00 of a processor)"},
				{time.Hour - time.Second, "it computes (1.00 of a processor)"},
				{named, "it sleeps or waits for something (0.00 of a processor)"},
			} {
				time.Sleep(c.after - time.Since(began))
				synctest.Wait()
				if got := b.String(); got != c.want {
					t.Errorf("with a threshold of %v, after %v: %q, want %q", stall, c.after, got, c.want)
				}
			}
			cancel()
			<-stopped
		})
	}
}

// TestProcessorTime: the time is this process's own.
func TestProcessorTime(t *testing.T) {
	before := processorTime()
	for n := 0; processorTime()-before < 10*time.Millisecond; n++ {
		if n == 1e8 {
			t.Fatal("none is used by a loop")
		}
	}
}

// TestBusyEnded: nothing is reported about a process that has ended, for which the kernel shows no time.
func TestBusyEnded(t *testing.T) {
	used := time.Hour
	b := newBusy(func() time.Duration { return used }, 0)
	for i := range b.last {
		b.last[i].at = b.last[i].at.Add(-busySpan)
	}
	if b.String() == "" {
		t.Error("nothing is told of a process that sleeps")
	}
	if used = 0; b.String() != "" {
		t.Errorf("it has ended, and %s", b.String())
	}
}

// BenchmarkBusy is one measurement, of which there are ten a second.
func BenchmarkBusy(b *testing.B) {
	m := newBusy(processorTime, 0)
	for b.Loop() {
		m.measure()
	}
}
