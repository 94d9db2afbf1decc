package bench

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
)

// Timing is of one operation: the median, and what 99 of 100 don't exceed.
type Timing struct {
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
}

// GPUResult is what an all-reduce of one size took on GPUs, by the GPUs' clocks, of the slowest rank.
type GPUResult struct {
	Ranks   int           `json:"ranks"`
	GPUs    int           `json:"gpus"`
	Bytes   int           `json:"bytes"`
	Eager   Timing        `json:"eager"`
	Graph   Timing        `json:"graph"`
	Copy    Timing        `json:"copy"`           // of as many bytes on one GPU, in a graph
	Enqueue time.Duration `json:"enqueue_ns"`     // of an eager call, on the host: the median
	NCCL    *Times        `json:"nccl,omitempty"` // nil where it was not measured
}

// Times are how long another library takes for the same all-reduce.
type Times struct {
	Eager Timing `json:"eager"`
	Graph Timing `json:"graph"`
}

// WriteGPU prints results as a table, with NCCL's times and the ratio of ours to them where it was measured.
func WriteGPU(w io.Writer, results []GPUResult) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	compared := slices.ContainsFunc(results, func(r GPUResult) bool { return r.NCCL != nil })
	fmt.Fprint(t, "ranks\tGPUs\tsize\teager\tp99\tgraph\tp99\tbus GB/s\tcopy\ttimes the copy\tcall\t")
	if compared {
		fmt.Fprint(t, "NCCL eager\tratio\tNCCL graph\tratio\t")
	}
	fmt.Fprintln(t)
	ratio := func(d, other time.Duration) float64 { return float64(d) / float64(max(other, 1)) }
	for _, r := range results {
		bus := Result{Ranks: r.Ranks, Bytes: r.Bytes, Latency: r.Graph.P50}.BusBandwidth()
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%.2f\t%s\t%.2f\t%s\t", r.Ranks, r.GPUs,
			humanize.IBytes(uint64(r.Bytes)), formatLatency(r.Eager.P50), formatLatency(r.Eager.P99),
			formatLatency(r.Graph.P50), formatLatency(r.Graph.P99), bus/1e9, formatLatency(r.Copy.P50),
			ratio(r.Graph.P50, r.Copy.P50), formatLatency(r.Enqueue))
		if n := r.NCCL; n != nil {
			fmt.Fprintf(t, "%s\t%.2f\t%s\t%.2f\t", formatLatency(n.Eager.P50), ratio(r.Eager.P50, n.Eager.P50),
				formatLatency(n.Graph.P50), ratio(r.Graph.P50, n.Graph.P50))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
