package rails

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// Without PXN, a rank has a connection with each rank of other hosts; with it, with those of its rail alone. A rank
// whose local index another host has not is on the rail of the one whose turn it is there.
func TestConnections(t *testing.T) {
	for _, c := range []struct {
		hosts   []int
		off, on []int // by rank
	}{
		{[]int{2, 2}, []int{2, 2, 2, 2}, []int{1, 1, 1, 1}},
		{[]int{4, 4}, []int{4, 4, 4, 4, 4, 4, 4, 4}, []int{1, 1, 1, 1, 1, 1, 1, 1}},
		{[]int{3, 2}, []int{2, 2, 2, 3, 3}, []int{1, 1, 1, 2, 1}},
		{[]int{1, 2, 1}, []int{3, 2, 2, 3}, []int{3, 2, 2, 3}},
	} {
		for _, pxn := range []bool{false, true} {
			want := c.off
			if pxn {
				want = c.on
			}
			t.Run(fmt.Sprintf("%d/pxn=%v", c.hosts, pxn), func(t *testing.T) {
				for rank, printed := range run(t, job{Hosts: c.hosts, Do: "count", PXN: pxn, Want: want}) {
					if got := strings.TrimSpace(printed); got != fmt.Sprint(want[rank]) {
						t.Errorf("rank %d has %s connections, want %d", rank, got, want[rank])
					}
				}
			})
		}
	}
}

// BenchmarkAllToAll prints the median time of an all-to-all with PXN off and on, measured by turns.
func BenchmarkAllToAll(b *testing.B) {
	for _, layout := range [][]int{{4, 4}, {4, 4, 4, 4}} {
		b.Run(fmt.Sprintf("%dx4", len(layout)), func(b *testing.B) {
			printed := run(b, job{
				Hosts: layout, Do: "measure", Budget: 2 * time.Second,
				Sizes: []int{64, 8 << 10, 512 << 10, 4 << 20},
			})
			fmt.Fprintf(os.Stderr, "%10s %12s %12s %6s\n", "bytes", "off", "on", "ratio")
			for line := range strings.Lines(printed[0]) {
				var t timing
				if err := json.Unmarshal([]byte(line), &t); err != nil {
					b.Fatal(err)
				}
				fmt.Fprintf(os.Stderr, "%10d %12v %12v %6.2f\n", t.Bytes, t.Off, t.On, float64(t.On)/float64(t.Off))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
