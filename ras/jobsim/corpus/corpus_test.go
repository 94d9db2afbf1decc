package corpus

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

var (
	trials = flag.Int("trials", 2, "how many trials of each kind")
	only   = flag.String("kind", "", "only trials of this kind")
	seed   = flag.Uint64("seed", 1, "the first trial's seed")
	most   = flag.Int("most", 16, "how many ranks a job has at most")
)

// TestCorpus plays some trials of each kind, and holds what is said about them to the bars of a small sample.
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
