package postmortem_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

var rewrite = flag.Bool("rewrite", false, "write the expected outputs anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// border stands in a scenario's file between the script and what its reports print.
const border = "----\n"

// TestScenarios plays the scripts in testdata and compares what their reports print.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scenarios: %v", len(files), err)
	}
	for _, file := range files {
		if file, err = filepath.Abs(file); err != nil { // the stage is another folder
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			script, want, _ := strings.Cut(string(text), border)
			got := newStage(t).play(script)
			if *rewrite {
				if err := os.WriteFile(file, []byte(script+border+got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got (go test -rewrite writes it anew):\n%s", diff)
			}
		})
	}
}
