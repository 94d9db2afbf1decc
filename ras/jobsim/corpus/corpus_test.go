package corpus

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/carillon-rt/carillon/ras/verdict"
)

var (
	trials = flag.Int("trials", 2, "how many trials of each kind")
	only   = flag.String("kind", "", "only trials of this kind")
	seed   = flag.Uint64("seed", 1, "the first trial's seed")
	most   = flag.Int("most", 16, "how many ranks a job has at most")
)

// TestCorpus plays some trials of each kind, and holds the verdicts on them to the bars of a small sample.
func TestCorpus(t *testing.T) {
	table := Table{}
	for _, k := range Kinds {
		if *only != "" && k.Name != *only {
			continue
		}
		for i := range *trials {
			trial := Draw(*seed+uint64(i), *most, k)
			res, err := Play(trial, t.TempDir())
			if err != nil {
				t.Fatalf("%v: %v", trial, err)
			}
			live, after := res.Scores()
			table.Add(k, live, after)
			if testing.Verbose() && (live.Wrong() || after.Wrong()) {
				res.Write(os.Stdout)
			}
		}
	}
	ok, err := table.Write(os.Stdout)
	if err != nil || !ok && *only == "" {
		t.Errorf("the bars are not reached; %v", err)
	}
	fmt.Println()
}

// TestScoreOfProcesses: a verdict on the end of a process names all its ranks. They are innocent if none is at fault.
func TestScoreOfProcesses(t *testing.T) {
	r := Result{Trial: &Trial{
		Layout: Layout{TP: 2, DP: 2, PP: 1, PerProcess: 2}, Faults: []Fault{{Kind: KindOf("count"), Rank: 1, Since: 1}},
	}}
	for process, innocents := range [][]int{nil, {2, 3}} {
		r.Live = []Told{{1, verdict.Verdict{
			Reason: verdict.RankDead, Culprits: []verdict.Rank{{Job: 2 * process}, {Job: 2*process + 1}},
		}}}
		live, _ := r.Scores()
		if live.Right || !slices.Equal(live.Innocents, innocents) {
			t.Errorf("the end of process %d: %v", process, live)
		}
	}
}
