package bench

import (
	"fmt"
	"io"
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
	Copy    Timing        `json:"copy"`       // of as many bytes on one GPU, in a graph
	Enqueue time.Duration `json:"enqueue_ns"` // of an eager call, on the host: the median
}

// WriteGPU prints results as a table.
func WriteGPU(w io.Writer, results []GPUResult) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "ranks\tGPUs\tsize\teager\tp99\tgraph\tp99\tbus GB/s\tcopy\ttimes the copy\tcall\t")
	for _, r := range results {
		bus := Result{Ranks: r.Ranks, Bytes: r.Bytes, Latency: r.Graph.P50}.BusBandwidth()
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%.2f\t%s\t%.2f\t%s\t\n", r.Ranks, r.GPUs,
			humanize.IBytes(uint64(r.Bytes)), formatLatency(r.Eager.P50), formatLatency(r.Eager.P99),
			formatLatency(r.Graph.P50), formatLatency(r.Graph.P99), bus/1e9, formatLatency(r.Copy.P50),
			float64(r.Graph.P50)/float64(max(r.Copy.P50, 1)), formatLatency(r.Enqueue))
	}
	return t.Flush()
}
