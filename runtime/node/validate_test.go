package node_test

import (
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/runtime/node"
)

// TestNameOfJob: a name that no folder can have is refused, unless there is no tape. A launcher's name is adapted.
func TestNameOfJob(t *testing.T) {
	const bad = "must not hold a slash"
	cfg := node.Default()
	cfg.World.Job = "lab/train"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("the error is %v, want %q in it", err, bad)
	}
	if cfg.Tape = node.TapeOff; cfg.Validate() != nil {
		t.Errorf("without a tape: %v", cfg.Validate())
	}
	torchrun := map[string]string{
		"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": strings.Repeat("lab/", 30),
	}
	cfg = node.Default()
	if err := node.FromEnviron(func(name string) string { return torchrun[name] })(&cfg); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil || !strings.HasPrefix(cfg.World.Job, "torchrun-lab_") {
		t.Errorf("torchrun's job is called %q: %v", cfg.World.Job, err)
	}
}
