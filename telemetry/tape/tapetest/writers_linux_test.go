package tapetest_test

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// The writer in C is compared with the format, and with Go's writer.
func TestCWriter(t *testing.T) {
	const library = "../../../runtime/attach/"
	sources, err := filepath.Glob(library + "tape*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("the writer has no sources: %v", err)
	}
	program := filepath.Join(t.TempDir(), "player")
	args := []string{"-std=c11", "-D_GNU_SOURCE", "-O2", "-o", program, library + "testdata/player.c"}
	if out, err := exec.Command("cc", append(args, sources...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	testWriter(t, playWith(nil, program))
}
