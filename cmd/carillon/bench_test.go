package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/bench"
)

// TestInterruptedBench: a terminal sends ^C to the command and all processes that it started; the answer is one line.
func TestInterruptedBench(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "bench", "--mpi=false", "--processes", "2", "--sizes", "8,64M",
		"--budget", "1h", "--max", "100")
	cmd.Env = append(os.Environ(), commandVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(stderr)
	if line, err := said.ReadString('\n'); err != nil || !strings.Contains(line, "8 B") {
		t.Fatalf("%v, %q", err, line)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(said)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its state tells how it ended
	if code := cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGINT) || string(rest) !=
		"carillon: bench: interrupted\n" {
		t.Errorf("exit code %d, and it says %q", code, rest)
	}
}

// TestFlagsRefused: flags that would be ignored or can't be used are refused before anything is measured.
func TestFlagsRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"bench", "--beside", "x"}, "--beside is for measuring on GPUs"},
		{[]string{"bench", "--gpu", "2", "--processes", "2"}, "--processes is for measuring on the host"},
		{[]string{"tune", "--max", "0"}, "--max is 0, allowed is --min or more"},
		{[]string{"tune", "-o", filepath.Join(t.TempDir(), "none", "x")}, "--output: open "},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], c.args...)
		cmd.Env = append(os.Environ(), commandVariable+"=1")
		said, _ := cmd.CombinedOutput() // its state tells how it ended
		if code := cmd.ProcessState.ExitCode(); code != usageCode || !strings.Contains(string(said), c.says) {
			t.Errorf("%v: exit code %d, want %d and %q, it says:\n%s", c.args, code, usageCode, c.says, said)
		}
	}
}

// TestLargeOperationsAllocateNothing: between processes with all parts of a node, a long operation allocates nothing,
// even though the observers see it and are active meanwhile.
func TestLargeOperationsAllocateNothing(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "bench", "--mpi=false", "--processes", "2", "--in-process", "0",
		"--sizes", "4M", "--budget", "1ms", "--min", "10", "--json")
	cmd.Env = append(os.Environ(), commandVariable+"=1")
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var r bench.Result
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if r.Bytes != 4<<20 || r.Iters < 10 || r.Allocs != 0 {
		t.Errorf("of 4 MiB, at least 10 times: %+v", r)
	}
}
