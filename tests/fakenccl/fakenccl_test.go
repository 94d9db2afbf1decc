package fakenccl_test

import (
	"bytes"
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/tests/fakenccl"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

var out string // where all programs are built

func TestMain(m *testing.M) {
	code := func() int {
		dir, err := os.MkdirTemp("", "fakenccl-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		out = dir
		return m.Run()
	}()
	os.Exit(code)
}

// start runs a program on a version, and returns its output, and whether it succeeded.
func start(t *testing.T, version string, env []string, program string, args ...string) (string, bool) {
	t.Helper()
	path := fakenccl.Program(t, out, program)
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+fakenccl.Build(t, out, version))
	cmd.Env = append(cmd.Env, env...)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err := cmd.Run()
	return both.String(), err == nil
}

func code(t *testing.T, version string) int {
	t.Helper()
	number := 0
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			t.Fatal(err)
		}
		number = number*100 + n
	}
	return number
}

// A library exports exactly the functions of its version, and their twins.
func TestExports(t *testing.T) {
	table, err := os.ReadFile(filepath.Join("..", "..", "runtime", "attach", "nccl-api.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range fakenccl.Versions {
		var want, got []string
		for line := range strings.Lines(string(table)) {
			if f := strings.Split(line, "\t"); f[0] == "function" && code(t, f[2]) <= code(t, version) {
				want = append(want, f[1], "p"+f[1])
			}
		}
		library, err := elf.Open(filepath.Join(fakenccl.Build(t, out, version), "libnccl.so.2"))
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := library.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range symbols {
			if s.Section != elf.SHN_UNDEF {
				got = append(got, s.Name)
			}
		}
		library.Close()
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s exports\n%q, want\n%q", version, got, want)
		}
	}
}

// Checks the results of operations, and the life of communicators, with ranks that are threads or processes.
func TestRanks(t *testing.T) {
	for _, version := range []string{"2.18.1", "2.28.9", "2.31.2"} {
		for _, program := range []string{"collectives", "life"} {
			for _, ranks := range []string{"threads", "processes"} {
				for _, n := range []string{"2", "4"} {
					if printed, ok := start(t, version, []string{"NCCL_DEBUG=WARN"}, program, ranks, n); !ok {
						t.Errorf("%s with %s %s on %s failed:\n%s", program, n, ranks, version, printed)
					}
				}
			}
		}
	}
}

// died tells whether signal 11 ended a rank.
func died(printed string) bool {
	return strings.Contains(printed, "killed by signal 11")
}

// A second destroy gets an error if the memory has not been reused, and crashes if it has.
func TestDestroyedTwice(t *testing.T) {
	for _, version := range fakenccl.Versions {
		printed, ok := start(t, version, nil, "double_destroy", "processes", "2")
		if answers := strings.Count(printed, "invalid argument"); !ok || answers != 2 {
			t.Errorf("%s, clean: %d ranks were answered, want 2:\n%s", version, answers, printed)
		}
		printed, _ = start(t, version, []string{"FAKENCCL_HEAP=dirty"}, "double_destroy", "processes", "2")
		if !died(printed) {
			t.Errorf("%s, dirty: no rank died:\n%s", version, printed)
		}
	}
}

// nccl#1605: before 2.26.2, a split with an unfinished group job crashes, unless the job's result was asked for first.
func TestSplitUnfinished(t *testing.T) {
	for _, c := range []struct {
		version string
		env     []string
		dies    bool
	}{
		{"2.18.1", nil, true},
		{"2.21.5", nil, true},
		{"2.25.1", nil, true},
		{"2.25.1", []string{"DRAIN=1"}, false},
		{"2.25.1", []string{"NCCL_COMM_BLOCKING=1"}, false},
		{"2.26.2", nil, false},
		{"2.27.3", nil, false},
		{"2.31.2", nil, false},
	} {
		printed, ok := start(t, c.version, c.env, "split_unfinished", "processes", "4")
		if died(printed) != c.dies || ok == c.dies {
			t.Errorf("%s %q: want that a rank dies: %v:\n%s", c.version, c.env, c.dies, printed)
		}
	}
}

// profile runs traffic on two nodes with the plug-in that counts, and returns the counts of ranks 0 and 1.
func profile(t *testing.T, version string, env ...string) (counted, printed string) {
	t.Helper()
	env = append(env, "NODES=node", "NCCL_PROFILER_PLUGIN="+fakenccl.Program(t, out, "plugin.so"))
	printed, _ = start(t, version, env, "traffic", "processes", "4")
	var lines []string
	for line := range strings.Lines(printed) {
		if strings.Contains(line, "rank 0: ") || strings.Contains(line, "rank 1: ") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), printed
}

// The events that plug-ins get, by version and mask, with their parents and numbers.
func TestProfiler(t *testing.T) {
	const file = "testdata/profiler.txt"
	var got strings.Builder
	for _, c := range []struct {
		version string
		env     []string
	}{
		{"2.22.3", []string{"PLUGIN_MASK=0xffff"}},
		{"2.23.4", []string{"PLUGIN_MASK=0xffff", "NCCL_P2P_DISABLE=1"}},
		{"2.24.3", []string{"PLUGIN_MASK=0xffff"}},
		{"2.26.2", []string{"PLUGIN_MASK=0xffff"}},
		{"2.27.3", []string{"PLUGIN_MASK=0xffff"}},
		{"2.28.9", []string{"PLUGIN_MASK=0x2"}},
		{"2.28.9", []string{"PLUGIN_MASK=0x302"}},
		{"2.28.9", []string{"PLUGIN_MASK=0x40"}},
		{"2.28.9", []string{"PLUGIN_MASK=0x302", "PLUGIN_MASK_LATER=0x342"}},
		{"2.28.9", []string{"PLUGIN_MASK=0xffff"}},
		{"2.28.9", []string{"PLUGIN_MASK=0x18", "FAKENCCL_PROXY=unpaired"}},
		{"2.29.2", []string{"PLUGIN_MASK=0x302"}},
		{"2.31.2", []string{"PLUGIN_MASK=0xffff"}},
	} {
		counted, _ := profile(t, c.version, c.env...)
		fmt.Fprintf(&got, "%s %s\n%s\n", c.version, strings.Join(c.env, " "), counted)
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("plug-ins were told\n%s\nwant what %s says:\n%s", &got, file, want)
	}
}

// nccl#1586: before 2.24.3, a proxy that works for another process says that the operation is of its own process. A
// plug-in that trusts this dereferences a pointer of the other process.
func TestForeignContext(t *testing.T) {
	for _, c := range []struct {
		version string
		env     string
		dies    bool
	}{
		{"2.23.4", "", true},
		{"2.23.4", "NCCL_P2P_DISABLE=1", false},
		{"2.24.3", "", false},
	} {
		if _, printed := profile(t, c.version, "PLUGIN_MASK=0x1f", c.env); died(printed) != c.dies {
			t.Errorf("%s %s: want that a rank dies: %v:\n%s", c.version, c.env, c.dies, printed)
		}
	}
}
