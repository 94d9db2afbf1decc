package node_test

import (
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/runtime/node"
)

// TestNameOfJob: a name that no folder can have is refused, unless there is no tape.
func TestNameOfJob(t *testing.T) {
	for _, tt := range []struct {
		job   string
		tape  node.Tape
		wants string // of the error; empty: there is none
	}{
		{"lab-train.7", node.TapeOn, ""},
		{"lab/train", node.TapeOn, "must not hold a slash"},
		{"lab/train", node.TapeOff, ""},
	} {
		cfg := node.Default()
		err := node.FromEnviron(func(name string) string {
			return map[string]string{"CARILLON_JOB": tt.job, "CARILLON_TAPE": string(tt.tape)}[name]
		})(&cfg)
		if err == nil {
			err = cfg.Validate()
		}
		switch {
		case tt.wants == "" && err != nil:
			t.Errorf("%s, tape %s: %v", tt.job, tt.tape, err)
		case tt.wants != "" && (err == nil || !strings.Contains(err.Error(), tt.wants)):
			t.Errorf("%s, tape %s: the error is %v, want %q in it", tt.job, tt.tape, err, tt.wants)
		}
	}
}
