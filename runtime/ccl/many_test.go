package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/runtime/ccl"
)

// ranks is the size of every communicator in this file; each rank is a goroutine of this process.
const manyRanks = 4

// atOnce runs fn for all ranks at once. Unlike each, it only costs the goroutines.
func atOnce(tb testing.TB, fn func(rank int) error) {
	tb.Helper()
	errs := make([]error, manyRanks)
	var wg sync.WaitGroup
	for r := range errs {
		wg.Go(func() { errs[r] = fn(r) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
}

// splitMany makes n children of world, all alive at once; the result is by rank.
func splitMany(ctx context.Context, tb testing.TB, world []*ccl.Comm, n int) [manyRanks][]*ccl.Comm {
	tb.Helper()
	var children [manyRanks][]*ccl.Comm
	atOnce(tb, func(r int) error {
		children[r] = make([]*ccl.Comm, n)
		for i := range n {
			var err error
			if children[r][i], err = world[r].Split(ctx, 0, 0, ccl.WithName("small")); err != nil {
				return fmt.Errorf("split %d on rank %d: %w", i, r, err)
			}
		}
		return nil
	})
	return children
}

func destroyAll(ctx context.Context, tb testing.TB, comms [manyRanks][]*ccl.Comm) {
	tb.Helper()
	atOnce(tb, func(r int) error {
		for _, c := range comms[r] {
			if err := c.Destroy(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// kernelObjects counts resources that a process can run out of long before memory: file descriptors and memory
// mappings.
func kernelObjects(tb testing.TB) (fds, mappings int) {
	tb.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		tb.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		tb.Fatal(err)
	}
	return len(open), strings.Count(string(maps), "\n")
}

// inUse returns the memory of reachable objects and of the goroutines' stacks.
func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // frees what the first collection's cleanups released
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Communicators of one process must cost it no kernel objects: thousands of them may be alive.
func TestManyCommunicatorsAreOnlyMemory(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	world, err := rt.InitAll(t.Context(), manyRanks, ccl.WithName("world"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	destroyAll(ctx, t, splitMany(ctx, t, world, 1)) // resources that all communicators share
	fds, mappings := kernelObjects(t)
	goroutines := runtime.NumGoroutine()
	const n = 200
	children := splitMany(ctx, t, world, n)
	if got := rt.Live(); got != manyRanks*(n+1) {
		t.Errorf("%d communicators are alive, want %d", got, manyRanks*(n+1))
	}
	fdsNow, mappingsNow := kernelObjects(t)
	if fdsNow > fds+n/10 || mappingsNow > mappings+n/2 { // the heap grows by mappings, too
		t.Errorf("%d communicators of %d ranks took %d file descriptors and %d mappings", n, manyRanks, fdsNow-fds,
			mappingsNow-mappings)
	}
	if more := runtime.NumGoroutine() - goroutines; more > n/10 {
		t.Errorf("%d idle communicators keep %d goroutines", n*manyRanks, more)
	}
	atOnce(t, func(r int) error { return sum(ctx, children[r][n-1]) })
	destroyAll(ctx, t, children)
	if got := rt.Live(); got != manyRanks {
		t.Errorf("%d communicators are alive after the end, want %d", got, manyRanks)
	}
	destroyAll(ctx, t, [manyRanks][]*ccl.Comm{{world[0]}, {world[1]}, {world[2]}, {world[3]}})
}

// BenchmarkTenThousandAlive keeps 4 × 2,500 communicators alive at once, and reports what each costs in memory, file
// descriptors and mappings.
func BenchmarkTenThousandAlive(b *testing.B) {
	const n = 10_000 / manyRanks
	rt := newRuntime(b, ccl.Config{})
	world, err := rt.InitAll(b.Context(), manyRanks)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		before := inUse()
		fds, mappings := kernelObjects(b)
		began := time.Now()
		children := splitMany(b.Context(), b, world, n)
		took := time.Since(began)
		after := inUse()
		fdsNow, mappingsNow := kernelObjects(b)
		if got := rt.Live(); got != manyRanks*(n+1) {
			b.Fatalf("%d communicators are alive, want %d", got, manyRanks*(n+1))
		}
		destroyAll(b.Context(), b, children)
		b.ReportMetric(float64(after-before)/(n*manyRanks), "B/comm")
		b.ReportMetric(float64(took.Nanoseconds())/(n*manyRanks), "split-ns/comm")
		b.ReportMetric(float64(fdsNow-fds), "fds")
		b.ReportMetric(float64(mappingsNow-mappings), "mappings")
	}
	destroyAll(b.Context(), b, [manyRanks][]*ccl.Comm{{world[0]}, {world[1]}, {world[2]}, {world[3]}})
}

// BenchmarkLifeOfMany makes n communicators with InitAll and n with Split, and destroys them; all are alive in between.
// The cost per communicator must not depend on their number.
func BenchmarkLifeOfMany(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			rt := newRuntime(b, ccl.Config{})
			ctx := b.Context()
			world, err := rt.InitAll(ctx, manyRanks)
			if err != nil {
				b.Fatal(err)
			}
			var inits, splits, destroys time.Duration
			rounds, used := 0, cpuTime(b)
			for b.Loop() {
				began := time.Now()
				var roots [manyRanks][]*ccl.Comm
				for range n {
					comms, err := rt.InitAll(ctx, manyRanks, ccl.WithName("small"))
					if err != nil {
						b.Fatal(err)
					}
					for r, c := range comms {
						roots[r] = append(roots[r], c)
					}
				}
				made := time.Now()
				children := splitMany(ctx, b, world, n)
				split := time.Now()
				destroyAll(ctx, b, roots)
				destroyAll(ctx, b, children)
				inits += made.Sub(began)
				splits += split.Sub(made)
				destroys += time.Since(split)
				rounds++
			}
			each := float64(rounds * n)
			// CPU time excludes other programs.
			b.ReportMetric(float64((cpuTime(b)-used).Nanoseconds())/(2*each), "cpu-ns/comm")
			b.ReportMetric(float64(inits.Nanoseconds())/each, "init-ns/comm")
			b.ReportMetric(float64(splits.Nanoseconds())/each, "split-ns/comm")
			b.ReportMetric(float64(destroys.Nanoseconds())/(2*each), "destroy-ns/comm")
			destroyAll(ctx, b, [manyRanks][]*ccl.Comm{{world[0]}, {world[1]}, {world[2]}, {world[3]}})
		})
	}
}
