package bench

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
)

// Timing is the duration of an operation: the median and the 99th percentile.
type Timing struct {
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
}

// GPUResult has the durations of a collective of one size, by the GPUs' clocks, on the slowest rank.
type GPUResult struct {
	Collective Collective    `json:"collective"`
	Ranks      int           `json:"ranks"`
	GPUs       int           `json:"gpus"`
	Bytes      int           `json:"bytes"` // see Collective
	Eager      Timing        `json:"eager"`
	Graph      Timing        `json:"graph"`
	Copy       Timing        `json:"copy"`      // a copy of as many bytes on one GPU, in a graph
	Call       time.Duration `json:"call_ns"`   // the median time of an eager call on the host
	Launch     time.Duration `json:"launch_ns"` // the driver's part of Call: the launch of an empty kernel
	Beside     []Library     `json:"beside,omitempty"`
}

// Library has the durations of the same collective in another library.
type Library struct {
	Name  string `json:"library"`
	Eager Timing `json:"eager"`
	Graph Timing `json:"graph"`
}

// WriteGPU prints results as a table, with other libraries' times and the ratios of our times to theirs.
func WriteGPU(w io.Writer, results []GPUResult) error {
	var names []string
	for _, r := range results {
		for _, l := range r.Beside {
			if !slices.Contains(names, l.Name) {
				names = append(names, l.Name)
			}
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "collective\tranks\tGPUs\tsize\teager\tp99\tgraph\tp99\tbus GB/s\tcopy\ttimes the copy\t",
		"call\tlaunch\t")
	for _, name := range names {
		fmt.Fprintf(t, "%s eager\tratio\t%s graph\tratio\t", name, name)
	}
	fmt.Fprintln(t)
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%.2f\t%s\t%.2f\t%s\t%s\t", r.Collective, r.Ranks, r.GPUs,
			humanize.IBytes(uint64(r.Bytes)), formatLatency(r.Eager.P50), formatLatency(r.Eager.P99),
			formatLatency(r.Graph.P50), formatLatency(r.Graph.P99),
			r.Collective.busBandwidth(r.Ranks, r.Bytes, r.Graph.P50)/1e9, formatLatency(r.Copy.P50),
			float64(r.Graph.P50)/float64(max(r.Copy.P50, 1)), formatLatency(r.Call), formatLatency(r.Launch))
		for _, name := range names {
			of := slices.IndexFunc(r.Beside, func(l Library) bool { return l.Name == name })
			if of < 0 {
				fmt.Fprint(t, "\t\t\t\t")
				continue
			}
			writeBeside(t, r.Eager, r.Beside[of].Eager)
			writeBeside(t, r.Graph, r.Beside[of].Graph)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// writeBeside prints another library's time, if it was measured, and the ratio of our time to it.
func writeBeside(w io.Writer, ours, theirs Timing) {
	if theirs.P50 <= 0 {
		fmt.Fprint(w, "\t\t")
		return
	}
	fmt.Fprintf(w, "%s\t%.2f\t", formatLatency(theirs.P50), float64(ours.P50)/float64(theirs.P50))
}
