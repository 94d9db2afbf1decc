package postmortem_test

import (
	"path/filepath"
	"testing"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestScenarios plays the scenarios in testdata (datadriven: go test . -rewrite writes their answers anew): play writes
// tapes as a script says it, see stage, and report prints what is to be read from them.
func TestScenarios(t *testing.T) {
	dir, err := filepath.Abs("testdata") // the stage is another folder
	if err != nil {
		t.Fatal(err)
	}
	datadriven.Walk(t, dir, func(t *testing.T, path string) {
		s := newStage(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			switch d.Cmd {
			case "play":
				s.play(d.Input)
				return ""
			case "report":
				return s.report(d.CmdArgs)
			default:
				d.Fatalf(t, "there is no command %q", d.Cmd)
				return ""
			}
		})
	})
}
