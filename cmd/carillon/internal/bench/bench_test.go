package bench

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
)

func TestParseSizes(t *testing.T) {
	for text, want := range map[string][]int{
		"8":          {8},
		"8, 64K,1M":  {8, 64 << 10, 1 << 20},
		"8:512":      {8, 64, 512},
		"8:1000":     {8, 64, 512, 1000},
		"4KiB":       {4096},
		"64M:64M":    {64 << 20},
		"8,1K:8K,1G": {8, 1 << 10, 8 << 10, 1 << 30},
	} {
		if got, err := ParseSizes(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "0", "-8", "6", "8:", "64:8", "9G", "99999999999999999999", "8,,8"} {
		if got, err := ParseSizes(text); err == nil || !strings.Contains(err.Error(), "size") &&
			!strings.Contains(err.Error(), "range") {
			t.Errorf("%q: %v, %v; want an error that says what is allowed", text, got, err)
		}
	}
}

func TestInProcess(t *testing.T) {
	s := Setup{Budget: time.Millisecond, Min: 2, Max: 10}
	r, err := inProcess(t.Context(), s, 3, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if r.Ranks != 3 || r.Bytes != 4096 || r.Iters < 2 || r.Iters > 10 || r.Latency <= 0 || r.busBandwidth() <= 0 {
		t.Errorf("the result is %+v", r)
	}
	if r.Allocs != 0 {
		t.Errorf("an operation in the steady state allocates %v times", r.Allocs)
	}
}

// Allocations of an operation are counted in all goroutines, and other allocations are not.
func TestAllocationsCounted(t *testing.T) {
	countAllocations()
	rt, err := ccl.New(ccl.Config{Engine: host.Kind(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background()) //nolint:errcheck // the test is over
	comms, err := rt.InitAll(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer comms[0].Close() //nolint:errcheck // the test is over
	const times = 100
	before := allocated()
	for range times {
		kept = append(kept, new(int))
	}
	if n := allocated() - before; n != 0 {
		t.Errorf("%d allocations of no operation are counted", n)
	}
	before = allocated()
	buf := make([]float32, 1)
	for range times {
		if err := ccl.IAllReduce(t.Context(), comms[0], buf, buf, ccl.Sum).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := allocated() - before; n < times {
		t.Errorf("%d allocations of %d operations that run in goroutines of their own are counted", n, times)
	}
}

var kept []*int

func TestTable(t *testing.T) {
	mode := "processes"
	var out strings.Builder
	err := Write(&out, []Result{
		{Side: "carillon", Mode: mode, Ranks: 2, Bytes: 8, Latency: 500 * time.Nanosecond},
		{Side: "openmpi", Mode: mode, Ranks: 2, Bytes: 8, Latency: 250 * time.Nanosecond, Allocs: -1},
		{Side: "carillon", Mode: mode, Ranks: 4, Bytes: 64 << 20, Latency: 96 * time.Millisecond},
		{Side: "openmpi", Mode: mode, Ranks: 4, Bytes: 64 << 20, Latency: 192 * time.Millisecond, Allocs: -1},
		{Side: "carillon", Mode: "in-process", Ranks: 4, Bytes: 1 << 10, Latency: 150 * time.Microsecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines, want a head and three:\n%s", len(lines), out.String())
	}
	for i, want := range []string{
		"all-reduce ranks size latency bus GB/s allocs/op Open MPI bus GB/s times as fast",
		"processes 2 8 B 0.50 µs 0.02 0.00 0.25 µs 0.03 0.50",
		"processes 4 64 MiB 96.0 ms 1.05 0.00 192.0 ms 0.52 2.00", // 2·3/4 of 64 MiB in 96 ms
		"in-process 4 1.0 KiB 150 µs 0.01 0.00",
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != want {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
}

// TestElements: sizes are as nccl-tests define them, and every rank has at least one element.
func TestElements(t *testing.T) {
	for _, c := range []struct {
		of                       Collective
		bytes, ranks, send, recv int
	}{
		{AllReduce, 64, 4, 16, 16},
		{AllGather, 64, 4, 4, 16},
		{ReduceScatter, 64, 4, 16, 4},
		{AllGather, 8, 3, 1, 3},
		{ReduceScatter, 64, 3, 15, 5},
	} {
		if send, recv := c.of.elements(c.bytes, c.ranks); send != c.send || recv != c.recv {
			t.Errorf("%s of %d bytes, %d ranks: %d elements sent and %d received, want %d and %d", c.of, c.bytes,
				c.ranks, send, recv, c.send, c.recv)
		}
	}
}

func TestGPUTable(t *testing.T) {
	us := func(n time.Duration) Timing { return Timing{n * time.Microsecond, 2 * n * time.Microsecond} }
	results := []GPUResult{
		{
			Collective: AllReduce, Ranks: 4, GPUs: 4, Bytes: 1 << 20, Eager: us(20), Graph: us(10), Copy: us(5),
			Call: 3 * time.Microsecond, Launch: 2 * time.Microsecond, Beside: []Library{{"NCCL", us(40), us(40)}},
		},
		{Collective: AllGather, Ranks: 4, GPUs: 4, Bytes: 1 << 20, Eager: us(20), Graph: us(10), Copy: us(5)},
	}
	others, err := ReadOthers(strings.NewReader(`
{"library": "PyTorch", "collective": "all_reduce", "ranks": 4, "bytes": 1048576, "graph": {"p50_ns": 20000}}
{"library": "PyTorch", "collective": "all_reduce", "ranks": 2, "bytes": 1048576, "graph": {"p50_ns": 30000}}`))
	if err != nil {
		t.Fatal(err)
	}
	Join(results, others)
	var out strings.Builder
	if err := WriteGPU(&out, results); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines, want a head and two:\n%s", len(lines), out.String())
	}
	for i, want := range []string{
		"collective ranks GPUs size eager p99 graph p99 bus GB/s copy times the copy call launch " +
			"NCCL eager ratio NCCL graph ratio PyTorch eager ratio PyTorch graph ratio",
		"all_reduce 4 4 1.0 MiB 20.00 µs 40.00 µs 10.00 µs 20.00 µs 157.29 5.00 µs 2.00 3.00 µs 2.00 µs " +
			"40.00 µs 0.50 40.00 µs 0.25 20.00 µs 0.50",
		"all_gather 4 4 1.0 MiB 20.00 µs 40.00 µs 10.00 µs 20.00 µs 78.64 5.00 µs 2.00 0.00 µs 0.00 µs",
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != want {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
	for _, text := range []string{"{", `{"library": "x"}`, `{"name": "x"}`} {
		if _, err := ReadOthers(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "object 1") {
			t.Errorf("%q: %v, want an error that says which object", text, err)
		}
	}
}
