package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
)

// Plan is a whole run.
type Plan struct {
	Setup
	Processes []int     // numbers of ranks to measure as processes
	InProcess []int     // numbers of ranks to measure within one process
	Compare   bool      // also measure Open MPI, where it is installed
	Self      string    // path of this program
	Progress  io.Writer // gets a line for each measurement as it is made
}

// Run makes all measurements of a plan, in the order in which they are shown. skipped says why Open MPI was not
// measured.
func Run(ctx context.Context, p Plan) (results []Result, skipped string, err error) {
	var mpi openMPI
	if p.Compare && len(p.Processes) > 0 {
		dir, err := os.MkdirTemp("", "carillon-bench-")
		if err != nil {
			return nil, "", err
		}
		defer os.RemoveAll(dir)
		mpi, skipped = newOpenMPI(ctx, dir)
	}
	add := func(r Result, err error) error {
		if err != nil {
			return err
		}
		results = append(results, r)
		fmt.Fprintf(p.Progress, "%-8s %d %s, %s: %s\n", r.Side, r.Ranks, r.Mode, humanize.IBytes(uint64(r.Bytes)),
			formatLatency(r.Latency))
		return nil
	}
	for _, n := range p.Processes {
		for _, size := range p.Sizes {
			err := add(processes(ctx, p.Self, p.Setup, n, size))
			if err == nil && mpi != "" {
				err = add(mpi.measure(ctx, p.Setup, n, size))
			}
			if err != nil {
				return results, skipped, err
			}
		}
	}
	for _, n := range p.InProcess {
		for _, size := range p.Sizes {
			if err := add(inProcess(ctx, p.Setup, n, size)); err != nil {
				return results, skipped, err
			}
		}
	}
	return results, skipped, nil
}

// Write prints results as a table: a line for each size, with Open MPI's figures and the ratio if measured.
func Write(w io.Writer, results []Result) error {
	type key struct {
		mode         string
		ranks, bytes int
	}
	mpi := map[key]Result{}
	for _, r := range results {
		if r.Side == "openmpi" {
			mpi[key{r.Mode, r.Ranks, r.Bytes}] = r
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := "all-reduce\tranks\tsize\tlatency\tbus GB/s\tallocs/op\t"
	if len(mpi) > 0 {
		head += "Open MPI\tbus GB/s\ttimes as fast\t"
	}
	fmt.Fprintln(t, head)
	for _, r := range results {
		if r.Side != "carillon" {
			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%.2f\t%.2f\t", r.Mode, r.Ranks, humanize.IBytes(uint64(r.Bytes)),
			formatLatency(r.Latency), r.busBandwidth()/1e9, r.Allocs)
		if m, ok := mpi[key{r.Mode, r.Ranks, r.Bytes}]; ok {
			fmt.Fprintf(t, "%s\t%.2f\t%.2f\t", formatLatency(m.Latency), m.busBandwidth()/1e9,
				float64(m.Latency)/float64(r.Latency))
		} else if len(mpi) > 0 {
			fmt.Fprint(t, "\t\t\t")
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

func formatLatency(d time.Duration) string {
	switch us := float64(d) / 1e3; {
	case us < 100:
		return fmt.Sprintf("%.2f µs", us)
	case us < 10_000:
		return fmt.Sprintf("%.0f µs", us)
	default:
		return fmt.Sprintf("%.1f ms", us/1e3)
	}
}
