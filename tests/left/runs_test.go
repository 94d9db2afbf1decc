package left

import (
	"regexp"
	"slices"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// TestRunsOfOneEnvironment: a job without a name that is started twice in the same environment has separate traces each
// time, and the post-mortem distinguishes the failed run from the healthy one.
func TestRunsOfOneEnvironment(t *testing.T) {
	c, tapes, port := newCollector(t), t.TempDir(), e2e.FreePort(t)
	env := append(c.env, "CARILLON_TAPE_DIR="+tapes)
	for _, j := range launch(t, 3, port, append(env, endVariable+"=os.Exit")...) {
		j.ExitCode()
	}
	for _, j := range launch(t, 3, port, append(env, endVariable+"="+well)...) {
		if j.ExitCode() != 0 {
			t.Error("the second run failed")
		}
	}

	c.hasOnce(t, "ccl.comm.init", "0", "0", "1", "1", "2", "2")
	inits, announced := map[string][]string{}, map[string][]string{} // ranks, by trace
	for _, s := range c.spans {
		switch s.name {
		case "ccl.comm.init":
			inits[s.trace] = append(inits[s.trace], s.rank)
		case "ccl.comm.init (started)":
			announced[s.trace] = append(announced[s.trace], s.rank)
		}
	}
	for trace, ranks := range inits {
		for _, r := range [][]string{ranks, announced[trace]} {
			if slices.Sort(r); !slices.Equal(r, []string{"0", "1", "2"}) {
				t.Errorf("the trace of an init has ranks %v, and announces %v", ranks, announced[trace])
			}
		}
	}
	if len(inits) != 2 {
		t.Errorf("the inits of two runs have %d traces", len(inits))
	}

	head := regexp.MustCompile(`(?m)^job default, run ([0-9a-f]{16}): 3 tapes on 1 host: (.*)$`)
	var runs []string
	for _, run := range []struct{ flags, says []string }{
		{nil, []string{"3 closed"}},
		{[]string{"--run", "1"}, []string{"3 died"}},
	} {
		j := e2e.Start(t, nil, "carillon", append(append([]string{"postmortem"}, run.flags...), tapes)...)
		if j.ExitCode() != 0 {
			t.Error("the post-mortem failed")
		}
		m := head.FindStringSubmatch(j.Output())
		if m == nil || !slices.Equal(m[2:], run.says) {
			t.Fatalf("%v: %q", run, m)
		}
		runs = append(runs, m[1])
	}
	if runs[0] == runs[1] {
		t.Errorf("both runs are %s", runs[0])
	}
}
