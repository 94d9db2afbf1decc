package rails

import (
	"fmt"
	"strings"
	"testing"
)

// Without PXN, a rank has a connection with each rank on other hosts; with PXN, only with those of its rail. A rank
// whose local index doesn't exist on another host joins the rail of one of that host's ranks, in turn.
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
