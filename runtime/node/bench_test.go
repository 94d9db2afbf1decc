package node_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/fx"
	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// memDir is a folder in memory, where a tape is by default: on a disk, writing back changed pages costs both sides.
func memDir(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "carillon-bench-") //nolint:usetesting // TempDir may be on a disk
	if err != nil {
		return b.TempDir()
	}
	b.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			b.Error(err)
		}
	})
	return dir
}

// quiet is a node without an endpoint that logs nothing.
func quiet(b *testing.B, opts ...node.Option) *node.Node {
	b.Helper()
	opts = append([]node.Option{
		node.WithTapeDir(memDir(b)), node.WithHealth(""),
		node.WithLog(slog.New(slog.DiscardHandler)),
	}, opts...)
	n, err := node.Start(b.Context(), opts...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return n
}

// job is a group of ranks in this process that do nothing but all-reduces.
type job struct {
	comms []*ccl.Comm
}

func newJob(b *testing.B, rt *ccl.Runtime, ranks int) *job {
	b.Helper()
	comms, err := rt.InitAll(b.Context(), ranks)
	if err != nil {
		b.Fatal(err)
	}
	return &job{comms}
}

func (j *job) destroy(b *testing.B) {
	b.Helper()
	for _, c := range j.comms {
		if err := c.Destroy(context.Background()); err != nil {
			b.Error(err)
		}
	}
}

// round makes count all-reduces of 1 KiB on every rank and says how long one took.
func (j *job) round(ctx context.Context, count int) (time.Duration, error) {
	errs := make([]error, len(j.comms))
	start := time.Now()
	var wg sync.WaitGroup
	for i, c := range j.comms {
		wg.Go(func() {
			buf := make([]float32, 256)
			for k := 0; k < count && errs[i] == nil; k++ {
				errs[i] = ccl.AllReduce(ctx, c, buf, buf, ccl.Sum)
			}
		})
	}
	wg.Wait()
	return time.Since(start) / time.Duration(count), errors.Join(errs...)
}

// BenchmarkOverhead is what all telemetry costs a job of four ranks in one process that does nothing but all-reduces of
// 1 KiB: how much longer they take than with the tape switched off, which is off-ns. It prints, in parts of that:
//
//	overhead-%   all telemetry: writing the tape, and reading it; at the median
//	error-%      the standard error of the mean of that
//	tape-%       a tape that nobody reads
//	readers-%    what of overhead-% is reading the tape
//	collector-%  the same where spans go to a collector; receiving them is in it, as the receiver is here
//
// Jobs with the tape switched off, with a tape alone, and with all telemetry take turns of a few milliseconds in random
// order, as the machine's speed varies; the median of a communicator's turns counts. Then new communicators follow, as
// the placement of their memory makes a difference of some per cent, too.
//
// The readers read on request, and as much at a time as they do while few records are on the tape's ring, as here.
// Their processor time is charged as if all processors that ranks use lost an equal part of it. Periodic work, such as
// looking for stalls four times a second, falls into anybody's turn.
func BenchmarkOverhead(b *testing.B) {
	const ranks, count, turns, fresh = 4, 1_000, 20, 60
	w, err := tape.Create(tape.Config{Dir: memDir(b)})
	if err != nil {
		b.Fatal(err)
	}
	rt, err := ccl.New(ccl.Config{Engine: host.Kind(), Tape: w})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(rt.Close(context.Background()), w.Close()); err != nil {
			b.Error(err)
		}
	})
	watched := quiet(b, node.WithTick(time.Hour))
	runtimes := [3]*ccl.Runtime{quiet(b, node.WithoutTape()).Runtime(), rt, watched.Runtime()}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			b.Error(err)
		}
	}))
	b.Cleanup(collector.Close)
	b.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.URL+"/v1/traces")
	sending := quiet(b, node.WithTick(time.Hour))
	var off, alone, all, readers, senders []float64 // off in ns, the others as parts of off
	for b.Loop() {
		for range fresh {
			var jobs [len(runtimes)]*job
			for i := range jobs { // warms up buffers, caches and tallies
				jobs[i] = newJob(b, runtimes[i], ranks)
				jobs[i].turn(b, count)
			}
			catchUp(b, watched) // now, and not in somebody's turn
			var took [len(jobs)][]float64
			for range turns {
				for _, i := range rand.Perm(len(jobs)) {
					took[i] = append(took[i], float64(jobs[i].turn(b, count)))
				}
			}
			base := median(took[0])
			off = append(off, base)
			alone = append(alone, median(took[1])/base-1)
			all = append(all, median(took[2])/base-1)
			for _, j := range jobs {
				j.destroy(b)
			}
		}
		base := median(off)
		readers = append(readers, readingCosts(b, watched, ranks, count, base)...)
		senders = append(senders, readingCosts(b, sending, ranks, count, base)...)
	}
	b.ReportMetric(median(off), "off-ns/allreduce")
	b.ReportMetric(100*(median(all)+mean(readers)), "overhead-%")
	b.ReportMetric(100*(standardError(all)+standardError(readers)), "error-%")
	b.ReportMetric(100*median(alone), "tape-%")
	b.ReportMetric(100*mean(readers), "readers-%")
	b.ReportMetric(100*mean(senders), "collector-%")
}

// turn is round, but an error ends the benchmark.
func (j *job) turn(b *testing.B, count int) time.Duration {
	b.Helper()
	d, err := j.round(b.Context(), count)
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// catchUp makes the node read all records on its tape, and send its spans, and returns the processor time used.
func catchUp(b *testing.B, n *node.Node) time.Duration {
	b.Helper()
	start := cpuTime(b, unix.CLOCK_PROCESS_CPUTIME_ID)
	if err := n.Telemetry().Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := n.Telemetry().Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	return cpuTime(b, unix.CLOCK_PROCESS_CPUTIME_ID) - start
}

// readingCosts is the cost of reading the node's tape per operation, as a part of an operation's time, measured a few
// times.
func readingCosts(b *testing.B, n *node.Node, ranks, count int, took float64) (parts []float64) {
	b.Helper()
	const times, pause = 12, 16 * 20 * time.Millisecond // the pause of tape.Follow while few records come
	j := newJob(b, n.Runtime(), ranks)
	defer j.destroy(b)
	for range times {
		catchUp(b, n)
		ops := 0
		for start := time.Now(); time.Since(start) < pause; ops += count {
			j.turn(b, count)
		}
		if few := 65_536 / 16; ops*ranks/tape.DefaultSampleEvery >= few {
			b.Errorf("%d operations in %v are not few", ops*ranks, pause)
		}
		cost := float64(catchUp(b, n)) / float64(ops) / float64(min(ranks, runtime.GOMAXPROCS(0)))
		parts = append(parts, cost/took)
	}
	return parts
}

// BenchmarkLongJob is the same job without turns: all-reduces one after the other, with the tape switched off and with
// all telemetry. cpus is how many processors it used: ranks that wait for each other use all processors, unless
// something keeps one from them.
func BenchmarkLongJob(b *testing.B) {
	for name, tape := range map[string]node.Tape{"off": node.TapeOff, "all": node.TapeOn} {
		b.Run(name, func(b *testing.B) {
			n := quiet(b, func(c *node.Config) error { c.Tape = tape; return nil })
			j := newJob(b, n.Runtime(), 4)
			defer j.destroy(b)
			b.ResetTimer()
			cpu := cpuTime(b, unix.CLOCK_PROCESS_CPUTIME_ID)
			d, err := j.round(b.Context(), b.N)
			if err != nil {
				b.Fatal(err)
			}
			cpu = cpuTime(b, unix.CLOCK_PROCESS_CPUTIME_ID) - cpu
			b.StopTimer()
			b.ReportMetric(float64(cpu)/float64(d*time.Duration(b.N)), "cpus")
		})
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

func mean(of []float64) (m float64) {
	for _, x := range of {
		m += x / float64(len(of))
	}
	return m
}

// standardError is the standard error of the mean.
func standardError(of []float64) float64 {
	m, squares := mean(of), 0.0
	for _, x := range of {
		squares += (x - m) * (x - m)
	}
	return math.Sqrt(squares / float64(len(of)-1) / float64(len(of)))
}

// cpuTime is the processor time that has been used, by this process (unix.CLOCK_PROCESS_CPUTIME_ID) or this thread
// (…THREAD…).
func cpuTime(b *testing.B, clock int32) time.Duration {
	b.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// BenchmarkFollowNode follows a tape of the default size at a million operations a second, with all that reads a node's
// tape: spans, metrics, log lines and stalls. They are ordinary operations, of which the readers see a sample and the
// tape's writer counts all. An iteration is a millisecond in which the writer writes the records due by the clock, for
// four communicators in turns, at most for 10 ms. missed is how many records the readers missed, readers-cpu-% their
// share of one processor.
func BenchmarkFollowNode(b *testing.B) {
	const rate, most = 1_000_000, 10_000 // operations a second, and at a time
	cfg := node.Default()
	cfg.TapeDir, cfg.Health, cfg.Log = memDir(b), "", slog.New(slog.DiscardHandler)
	var w *tape.Writer
	var telemetry *node.Telemetry
	app := fx.New(node.Module, fx.Supply(&cfg), fx.NopLogger, fx.Populate(&w, &telemetry))
	if err := app.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	comms := make([]*tape.CommWriter, 4)
	for i := range comms {
		comms[i] = w.Comm(tape.CommInfo{
			ID: lifecycle.CommID{1}, Name: "world", Rank: i, Size: len(comms), Engine: "host",
		})
	}
	sig := tape.Signature{Call: lifecycle.CallAllReduce, DataType: uint8(kernels.Float32), Peer: -1, Bytes: 1024}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	process, writer := cpuTime(b, unix.CLOCK_PROCESS_CPUTIME_ID), cpuTime(b, unix.CLOCK_THREAD_CPUTIME_ID)
	start := time.Now()
	began, records := start, 0
	for b.Loop() {
		<-tick.C
		due := int(time.Since(began).Seconds() * rate)
		// Others had the processor: a program that writes a million records a second doesn't catch up.
		if late := due - records - most; late > 0 {
			began = began.Add(time.Duration(late) * time.Second / rate)
			due -= late
		}
		for ; records < due; records++ { // one for each operation that need not wait
			c := comms[records%len(comms)]
			c.End(c.Start(0, sig, 1), 0)
		}
	}
	elapsed := time.Since(start)
	if err := app.Stop(context.Background()); err != nil { // once all is read
		b.Error(err)
	}
	process, writer = cpuTime(b, unix.CLOCK_PROCESS_CPUTIME_ID)-process, cpuTime(b, unix.CLOCK_THREAD_CPUTIME_ID)-writer
	counts := counters(b, telemetry)
	missed := counts[semconv.MetricTapeMissed]
	if counted := counts[semconv.MetricOperations]; missed == 0 && int(counted) != records {
		b.Errorf("%.0f operations were counted, of %d", counted, records)
	}
	b.ReportMetric(missed, "missed")
	b.ReportMetric(float64(records)/elapsed.Seconds(), "records/s")
	b.ReportMetric(100*writer.Seconds()/elapsed.Seconds(), "writer-cpu-%")
	b.ReportMetric(100*(process-writer).Seconds()/elapsed.Seconds(), "readers-cpu-%")
}

// counters are the sums of the counters, by name.
func counters(b testing.TB, t *node.Telemetry) map[string]float64 {
	b.Helper()
	families, err := t.Registry().Gather()
	if err != nil {
		b.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			sums[f.GetName()] += m.GetCounter().GetValue()
		}
	}
	return sums
}
