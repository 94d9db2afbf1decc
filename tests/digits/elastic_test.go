package digits

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// Long enough for the kills to come during the training, and short enough to await its end.
const elasticEpochs = "200"

// elastic starts an elastic job, and returns the process ids of its ranks.
func elastic(t *testing.T, n int, flags ...string) (*e2e.Job, []int) {
	t.Helper()
	j := job(t, n, nil, append([]string{"-v", "--min-ranks", "1"}, flags...), "-elastic", "-epochs", elasticEpochs)
	pids := make([]int, n)
	for rank := range pids {
		pids[rank] = j.AwaitPID(fmt.Sprintf(`^carillon: rank %d: pid (\d+)`, rank))
	}
	return j, pids
}

func TestElasticJobOutlivesItsRanks(t *testing.T) {
	for _, tc := range []struct {
		name  string
		ranks int
		flags []string
		kills [][]int // each element is killed together, one element after the other
	}{
		{"one node", 4, nil, [][]int{{2}}},
		{"two nodes", 4, []string{"--simulate-nodes", "2"}, [][]int{{2}}},
		{"one after the other", 4, []string{"--simulate-nodes", "2"}, [][]int{{3}, {1}}},
		{"rank 0", 4, nil, [][]int{{0}}},
		{"rank 0 on two nodes, and its successor", 4, []string{"--simulate-nodes", "2"}, [][]int{{0}, {1}}},
		{"two together", 5, []string{"--simulate-nodes", "2"}, [][]int{{1, 3}}},
		{"all but one", 3, nil, [][]int{{0, 2}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			j, pids := elastic(t, tc.ranks, tc.flags...)
			j.Await(`^\[0\] epoch +3 of`)
			dead := map[int]bool{}
			for _, together := range tc.kills {
				for _, rank := range together {
					e2e.Kill(t, pids[rank], syscall.SIGKILL)
					dead[rank] = true
				}
				j.Await(fmt.Sprintf(`died in epoch \d+; %d ranks? goe?s? on from step \d+`, tc.ranks-len(dead)))
			}
			if got := learned(t, j); got < 95 {
				t.Errorf("%.1f %% right, want at least 95", got)
			}
			checkStory(t, j.Output(), tc.ranks, dead)
		})
	}
}

// checkStory checks that every death was reported once by the ranks and once by the launcher, and that the survivors'
// epochs were.
func checkStory(t *testing.T, output string, ranks int, dead map[int]bool) {
	t.Helper()
	said := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^\[\d+\] ranks? ([\d, and]+) died in epoch \d+;`).FindAllStringSubmatch(
		output, -1) {
		for _, rank := range regexp.MustCompile(`\d+`).FindAllString(m[1], -1) {
			said[rank]++
		}
	}
	if len(said) != len(dead) {
		t.Errorf("the ranks tell of the deaths %v, want %v", said, dead)
	}
	for rank := range dead {
		if said[strconv.Itoa(rank)] != 1 {
			t.Errorf("the death of rank %d is told %d times", rank, said[strconv.Itoa(rank)])
		}
		if !regexp.MustCompile(fmt.Sprintf(`; rank %d \(pid \d+\) was lost: killed by SIGKILL`,
			rank)).MatchString(output) {
			t.Errorf("the launcher does not say at the end that rank %d was lost", rank)
		}
	}
	if want := "epoch " + elasticEpochs + " of " + elasticEpochs; strings.Count(output, want) != 1 {
		t.Errorf("%q is there %d times", want, strings.Count(output, want))
	}
	want := fmt.Sprintf("%d replicas, bit by bit the same", ranks-len(dead))
	if ranks-len(dead) == 1 {
		want = "1 replica, bit by bit the same"
	}
	if !strings.Contains(output, want) {
		t.Errorf("the output lacks %q", want)
	}
}

// The launcher may go on without some ranks, but the ranks can't: the launcher's flag only changes what ends them.
func TestLauncherAloneMakesNoJobElastic(t *testing.T) {
	j := job(t, 3, nil, []string{"-v", "--min-ranks", "1"}, "-epochs", "1000000")
	pid := j.AwaitPID(`^carillon: rank 2: pid (\d+)`)
	j.Await(`^\[0\] epoch +3 of`)
	e2e.Kill(t, pid, syscall.SIGKILL)
	if code := j.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want that of the last rank, 1", code)
	}
}

// The other way round: ranks that could go on are ended by a launcher without the flag.
func TestElasticRanksAloneMakeNoJobElastic(t *testing.T) {
	j := job(t, 3, nil, []string{"-v", "--linger", "0s"}, "-elastic", "-epochs", "1000000")
	pid := j.AwaitPID(`^carillon: rank 2: pid (\d+)`)
	j.Await(`^\[0\] epoch +3 of`)
	e2e.Kill(t, pid, syscall.SIGKILL)
	if code := j.ExitCode(); code != 128+9 {
		t.Errorf("exit code %d, want %d", code, 128+9)
	}
}
