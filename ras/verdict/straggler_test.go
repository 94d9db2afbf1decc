package verdict_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/ras/verdict"
)

// TestLateAgain: where each delay of a straggler is a stall, it is slow, until it is late for twice as long as usual. A
// rank that is not known to be slow is missing at once.
func TestLateAgain(t *testing.T) {
	const second = time.Second
	for _, c := range []struct {
		name    string
		missing int
		wait    time.Duration
		want    string
	}{
		{"late as usual", 2, 3 * second, `straggler: rank 2 (node1, pid 1002) holds up "world"`},
		{"late for longer", 2, 5 * second, `not_entered: rank 2 (node1, pid 1002) has not entered`},
		{"another rank", 1, 3 * second, `not_entered: rank 1 (node0, pid 1001) has not entered`},
	} {
		var others []int
		for _, r := range seq(4) {
			if r != c.missing {
				others = append(others, r)
			}
		}
		j := newJob(4).in(world, 10, allReduce, c.wait, c.missing, c.wait, others...).
			did(world, 9, allReduce, c.wait, c.missing).with(waited(2, 9*second, 9, 20*second), 0, 1, 3)
		for r := range j {
			for i := range j[r].Slots[0].Waited {
				j[r].Slots[0].Waited[i].Long, j[r].Slots[0].Waited[i].LongTime = 9, int64(18*second)
			}
		}
		verdicts, _ := verdict.Diagnose(j)
		if len(verdicts) != 1 || !strings.HasPrefix(verdicts[0].String(), c.want) {
			t.Errorf("%s: %v", c.name, verdicts)
		}
	}
}
