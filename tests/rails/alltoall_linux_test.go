package rails

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
)

// BenchmarkAllToAll prints the median time of an all-to-all with PXN off and on, measured in turn, and the median and
// the quartiles of their ratios. An iteration measures all sizes once, in a job of its own.
func BenchmarkAllToAll(b *testing.B) {
	for _, layout := range [][]int{{4, 4}, {4, 4, 4, 4}} {
		b.Run(fmt.Sprintf("%dx4", len(layout)), func(b *testing.B) {
			enter := newHosts(b, len(layout))
			sizes := []int{8, 64, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20}
			j := job{Hosts: layout, Do: "alltoall", Budget: 200 * time.Millisecond, Sizes: sizes}
			var rows [][]timing // by size, and iteration
			for b.Loop() {
				printed := runOn(b, enter, j)
				row := 0
				for line := range strings.Lines(printed[0]) {
					var t timing
					if err := json.Unmarshal([]byte(line), &t); err != nil {
						b.Fatal(err)
					}
					if row == len(rows) {
						rows = append(rows, nil)
					}
					rows[row] = append(rows[row], t)
					row++
				}
			}
			fmt.Fprintf(os.Stderr, "\n%s\n%10s %12s %12s %6s %13s\n",
				b.Name(), "bytes", "off", "on", "on/off", "quartiles")
			for _, row := range rows {
				var off, on []time.Duration
				var ratios []float64
				for _, t := range row {
					off, on, ratios = append(off, t.Off), append(on, t.On), append(ratios, float64(t.On)/float64(t.Off))
				}
				fmt.Fprintf(os.Stderr, "%10d %12v %12v %6.2f %6.2f %6.2f\n", row[0].Bytes, median(off), median(on),
					median(ratios), ratios[len(ratios)/4], ratios[len(ratios)*3/4])
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// timing is the median time of an all-to-all, with PXN off and on.
type timing struct {
	Bytes   int
	Off, On time.Duration
}

// measureAllToAll times all-to-alls over both worlds, in turn. Each turn of a world begins with a few calls that don't
// count: the resources of a world go to sleep during the other one's turn.
func measureAllToAll(ctx context.Context, worlds [2]*ccl.Comm, size int, budget time.Duration) (timing, error) {
	settle, turn := 3, 10
	if size > 1<<20 {
		settle, turn = 1, 3
	}
	n := worlds[0].Size()
	send := make([]byte, max(size/n, 1)*n)
	recv := make([]byte, len(send))
	var times [2][]time.Duration
	end := time.Now().Add(budget)
	for more := []int32{1}; more[0] > 0; {
		for i, world := range worlds {
			for k := range settle + turn {
				begun := time.Now()
				if err := ccl.AllToAll(ctx, world, send, recv); err != nil {
					return timing{}, err
				}
				if k >= settle {
					times[i] = append(times[i], time.Since(begun))
				}
			}
		}
		more[0] = 0
		if time.Now().Before(end) {
			more[0] = 1
		}
		if err := ccl.Broadcast(ctx, worlds[0], more, more, 0); err != nil {
			return timing{}, err
		}
	}
	return timing{Bytes: len(send), Off: median(times[0]), On: median(times[1])}, nil
}

// touchWindows fills all windows between the ranks, each of which has at most 2 MiB: memory that nobody has touched is
// slower.
func touchWindows(ctx context.Context, worlds [2]*ccl.Comm) error {
	n := worlds[0].Size() * 2 << 20
	send, recv := make([]byte, n), make([]byte, n)
	for _, world := range worlds {
		if err := ccl.AllToAll(ctx, world, send, recv); err != nil {
			return err
		}
	}
	return nil
}

// median sorts d and returns its median.
func median[T cmp.Ordered](d []T) T {
	slices.Sort(d)
	return d[len(d)/2]
}
