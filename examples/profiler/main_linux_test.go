//go:build cgo

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/carillon-rt/carillon/runtime/node"
)

// TestMain runs the example itself in the process that TestExample starts.
func TestMain(m *testing.M) {
	if os.Getenv("EXAMPLE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Both plug-ins report what the two ranks did.
func TestExample(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), "plugin.so")
	build := exec.CommandContext(t.Context(), "cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", plugin,
		"c/plugin.c")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), "EXAMPLE=1", "CARILLON_PROFILER_PLUGIN="+plugin, "CARILLON_TAPE_DIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, line := range []string{
		`pair rank 0: 5 all_reduce, .*s each`, `pair rank 1: 5 all_reduce, .*s each`,
		`pair rank 0: 1 broadcast, .*s each`, `pair rank 1: 1 broadcast, .*s each`,
		`pair rank 0: 6 collectives, \d+ us each`, `pair rank 1: 6 collectives, \d+ us each`,
	} {
		if n := len(regexp.MustCompile(`(?m)^`+line+`$`).FindAll(out, -1)); n != 1 {
			t.Errorf("%q is there %d times:\n%s", line, n, out)
		}
	}
}

// The plug-in in Go needs no environment variables.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out, node.WithTapeDir(t.TempDir())); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(out.Bytes(), []byte("\n")); n != 4 {
		t.Errorf("%d lines, want 4:\n%s", n, out.String())
	}
}
