package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/carillon-rt/carillon/runtime/ccl"
)

// Setup says what to measure.
type Setup struct {
	Sizes  []int         // bytes, multiples of 4 (float32, sum)
	Budget time.Duration // for all iterations of one size
	Min    int           // the least number of iterations
	Max    int           // the greatest number of iterations
}

// Result is the measurement of one size.
type Result struct {
	Side    string        `json:"side"` // "carillon" or "openmpi"
	Mode    string        `json:"mode"` // "processes" or "in-process"
	Ranks   int           `json:"ranks"`
	Bytes   int           `json:"bytes"`
	Iters   int           `json:"iterations"`
	Latency time.Duration `json:"latency_ns"`
	Allocs  float64       `json:"allocs_per_op"` // by the data path, of all ranks in the process; -1 if unknown
}

func (r Result) busBandwidth() float64 { return AllReduce.busBandwidth(r.Ranks, r.Bytes, r.Latency) }

// iterations is how often to measure an operation that takes the given time.
func (s Setup) iterations(once time.Duration) int {
	return min(max(int(s.Budget/max(once, time.Nanosecond)), s.Min), s.Max)
}

// measure times all-reduces of one size on one rank, and agrees with the other ranks on iterations and result.
func measure(ctx context.Context, comm *ccl.Comm, s Setup, bytes int) (Result, error) {
	send, recv := make([]float32, bytes/4), make([]float32, bytes/4)
	for i := range send {
		send[i] = 1
	}
	trial := func(n int) ([]time.Duration, error) {
		if err := ccl.Barrier(ctx, comm); err != nil {
			return nil, err
		}
		took := make([]time.Duration, n)
		for i := range took {
			start := time.Now()
			if err := ccl.AllReduce(ctx, comm, send, recv, ccl.Sum); err != nil {
				return nil, err
			}
			took[i] = time.Since(start)
		}
		return took, nil
	}
	warm, err := trial(s.Min)
	if err != nil {
		return Result{}, err
	}
	n, err := largest(ctx, comm, float64(s.iterations(median(warm))))
	if err != nil {
		return Result{}, err
	}
	before := allocated()
	took, err := trial(int(n))
	if err != nil {
		return Result{}, err
	}
	allocs := float64(allocated()-before) / n
	sum := float32(comm.Size()) // outside of the loop: Size takes a lock
	for i, v := range recv {
		if v != sum {
			return Result{}, fmt.Errorf("element %d of the sum over %d ranks is %v: the all-reduce is wrong",
				i, comm.Size(), v)
		}
	}
	slowest, err := largest(ctx, comm, float64(median(took)))
	if err != nil {
		return Result{}, err
	}
	return Result{
		Side: "carillon", Ranks: comm.Size(), Bytes: bytes, Iters: int(n), Latency: time.Duration(slowest),
		Allocs: allocs,
	}, nil
}

func largest(ctx context.Context, comm *ccl.Comm, v float64) (float64, error) {
	buf := []float64{v}
	err := ccl.AllReduce(ctx, comm, buf, buf, ccl.Max)
	return buf[0], err
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// ParseSizes reads sizes such as "8", "64K", "8:64M" (from 8 B to 64 MiB, times 8 each), separated by commas.
func ParseSizes(text string) ([]int, error) {
	var sizes []int
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), ":")
		lo, err := parseSize(from)
		if err != nil {
			return nil, err
		}
		hi := lo
		if isRange {
			if hi, err = parseSize(to); err != nil {
				return nil, err
			}
		}
		if hi < lo {
			return nil, fmt.Errorf("range %q ends before it begins", part)
		}
		for n := lo; n <= hi; n *= 8 {
			sizes = append(sizes, n)
		}
		if sizes[len(sizes)-1] != hi {
			sizes = append(sizes, hi)
		}
	}
	return sizes, nil
}

func parseSize(text string) (int, error) {
	unit := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(text), "B"), "I")
	if strings.Trim(unit, "KMG") != unit {
		unit += "iB" // all are powers of 1024
	}
	n, err := humanize.ParseBytes(unit)
	if err != nil || n < 1 || n > 1<<32 || n%4 != 0 {
		return 0, fmt.Errorf("size %q: want a multiple of 4 bytes up to 4G, such as 8, 64K or 64M", text)
	}
	return int(n), nil
}
