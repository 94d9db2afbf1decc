package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	table   = "../../nccl-profiler-abi.tsv"
	current = "../../profiler_abi.h"
)

// TestHeaderIsCurrent generates the header again.
func TestHeaderIsCurrent(t *testing.T) {
	again := filepath.Join(t.TempDir(), "profiler_abi.h")
	if err := generate(table, again); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(again)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(current)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("profiler_abi.h is not current (make generate)")
	}
}

// TestHeaderHolds compiles the header by each compiler that there is, and for arm64 where its compiler is installed.
func TestHeaderHolds(t *testing.T) {
	for _, cc := range []string{"gcc", "clang", "aarch64-linux-gnu-gcc"} {
		if _, err := exec.LookPath(cc); err != nil {
			if cc == "gcc" {
				t.Fatalf("the tests need gcc: %v", err)
			}
			continue
		}
		if out, err := compile(t, cc, current); err != nil {
			t.Errorf("%s: %v\n%s", cc, err, out)
		}
	}
}

// TestAssertionsBite changes a table's offset and size: the header that is made of it must not compile.
func TestAssertionsBite(t *testing.T) {
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{"v5\tcollApi\tstream\t56\t8", "v5\tcollApi\tstream\t64\t8", "collApi.stream in v5"},
		{"v4\tp2p\tpeer\t56\t4", "v4\tp2p\tpeer\t56\t8", "p2p.nChannels in v4"},
		{"v7\t-\tsizeof\t0\t136", "v7\t-\tsizeof\t0\t128", "size in v7"},
	} {
		changed := strings.Replace(string(text), c.from, c.to, 1)
		if changed == string(text) {
			t.Fatalf("the table has no %q", c.from)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "table.tsv"), []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		header := filepath.Join(dir, "profiler_abi.h")
		if err := generate(filepath.Join(dir, "table.tsv"), header); err != nil {
			t.Fatal(err)
		}
		if out, err := compile(t, "gcc", header); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("with %q, gcc says %v and not %q:\n%s", c.to, err, c.want, out)
		}
	}
}

// TestBadTable reads tables that are none.
func TestBadTable(t *testing.T) {
	const head = "kind\tversion\tunion_member\tfield\toffset_bytes\tsize_bytes\n"
	for _, c := range []struct{ lines, want string }{
		{"descr\tv1\t-\ttype\t0\t1\n", "v1 has no size before its fields"},
		{"descr\tv1\t-\tsizeof\t0\tmany\n", "no number"},
		{"descr\tv1\t-\tsizeof\t0\t8\ndescr\tv1\tgraph\tid\t0\t8\n", "no type of events is known for graph"},
		{"descr\tv1\t-\tsizeof\t0\t8\ndescr\tv1\t-\ttype\t0\t3\n", "type has 3 bytes"},
	} {
		file := filepath.Join(t.TempDir(), "table.tsv")
		if err := os.WriteFile(file, []byte(head+c.lines), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := generate(file, file+".h"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v; want %q", c.lines, err, c.want)
		}
	}
}

// compile checks a header.
func compile(t *testing.T, cc, header string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), cc, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion",
		"-Wshadow", "-Werror", "-Wno-unused-function", "-I../..", "-fsyntax-only", "-x", "c", "-include", header,
		os.DevNull)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
