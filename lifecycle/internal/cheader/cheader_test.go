package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
)

const (
	source  = "../.." // package lifecycle
	current = source + "/carillon_lifecycle.h"
)

// compilers are those that the header is held against: C's must be there, the others are tried where they are
// installed.
var compilers = []struct {
	command string
	flags   []string
	must    bool
}{
	{"gcc", []string{"-x", "c", "-std=c11"}, true},
	{"g++", []string{"-x", "c++", "-std=c++11"}, false},
	{"clang", []string{"-x", "c", "-std=c11"}, false},
	{"clang++", []string{"-x", "c++", "-std=c++11"}, false},
}

// installed is what of compilers is installed, with flags that make of every finding an error.
func installed(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, c := range compilers {
		if _, err := exec.LookPath(c.command); err == nil {
			found[c.command] = append([]string{
				"-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror",
				"-I" + source,
			}, c.flags...)
		} else if c.must {
			t.Fatalf("the tests need %s: %v", c.command, err)
		}
	}
	return found
}

func TestHeaderIsCurrent(t *testing.T) {
	again := filepath.Join(t.TempDir(), "carillon_lifecycle.h")
	if err := generate(source, again); err != nil {
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
	differ(t, "carillon_lifecycle.h is not current (make generate): line", string(want), string(got))
}

// TestCAgreesWithGo asks the header everything that can be asked, numbers that do not exist included, and compares with
// Go's answers.
func TestCAgreesWithGo(t *testing.T) {
	want := answers()
	for compiler, flags := range installed(t) {
		t.Run(compiler, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "numbers.h"), []byte(numbers()), 0o600); err != nil {
				t.Fatal(err)
			}
			program := filepath.Join(dir, "dump")
			run(t, compiler, append(flags, "-I"+dir, "-o", program, "testdata/dump.c")...)
			differ(t, "C and Go disagree: answer", want, run(t, program))
		})
	}
}

// TestHeaderStandsAlone compiles the header and nothing else, for a machine without a C library.
func TestHeaderStandsAlone(t *testing.T) {
	for compiler, flags := range installed(t) {
		t.Run(compiler, func(t *testing.T) {
			unit := filepath.Join(t.TempDir(), "alone.c")
			if err := os.WriteFile(unit, []byte("#include \"carillon_lifecycle.h\"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			run(t, compiler, append(flags, "-ffreestanding", "-fsyntax-only", unit)...)
		})
	}
}

func TestNotes(t *testing.T) {
	n, err := readNotes(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ kind, name, want string }{
		{"Code", "rank_dead", "the peer's process ended"},
		{"Event", "async_failure", "a peer died, a transport broke, an operation was abandoned"},
		{"Call", "all_reduce", ""},
	} {
		if got := n.of(c.kind, c.name); got != c.want {
			t.Errorf("the note on %s %s is %q; want %q", c.kind, c.name, got, c.want)
		}
	}
	for _, s := range lifecycle.States()[1:] {
		if n.of("State", s.String()) == "" {
			t.Errorf("state %v is not explained", s)
		}
	}
	for constant, note := range n {
		if strings.Contains(note, "*/") || strings.ContainsAny(note, "\n\\") {
			t.Errorf("the comment behind %s can't stand in a C comment: %q", constant, note)
		}
	}
	if _, err := readNotes(t.TempDir()); err == nil {
		t.Error("a folder without the package gives no error")
	}
}

// answers is what testdata/dump.c is to print.
func answers() string {
	var b strings.Builder
	for s := range math.MaxUint8 + 1 {
		state := lifecycle.State(s)
		fmt.Fprintf(&b, "state %d %s\n", s, known(state, state.String(), lifecycle.States()))
		for c := range math.MaxUint8 + 1 {
			next, code := lifecycle.Next(state, lifecycle.Call(c))
			fmt.Fprintf(&b, "next %d %d %d %d\n", s, c, next, code)
		}
		for e := range math.MaxUint8 + 1 {
			fmt.Fprintf(&b, "after %d %d %d\n", s, e, lifecycle.After(state, lifecycle.Event(e)))
		}
	}
	for c := range math.MaxUint8 + 1 {
		call := lifecycle.Call(c)
		fmt.Fprintf(&b, "call %d %s\n", c, known(call, call.String(), lifecycle.Calls(), lifecycle.CallNone))
	}
	for e := range math.MaxUint8 + 1 {
		event := lifecycle.Event(e)
		fmt.Fprintf(&b, "event %d %s\n", e, known(event, event.String(), lifecycle.Events(), lifecycle.EventNone))
	}
	for c := range math.MaxUint16 + 1 {
		code := lifecycle.Code(c)
		fmt.Fprintf(&b, "code %d %s %d\n", c, known(code, code.String(), lifecycle.Codes()), code.NCCL())
	}
	return b.String()
}

// known is the name of v where v is one of all or more, and else what C says of a number that does not exist.
func known[T comparable](v T, name string, all []T, more ...T) string {
	if slices.Contains(append(all, more...), v) {
		return name
	}
	return "unknown"
}

// numbers is a C file that compiles if the header has all enumerators, each with Go's number, and as many as Go.
func numbers() string {
	var b strings.Builder
	b.WriteString("#include <assert.h>\n\n")
	is := func(name string, number int) {
		fmt.Fprintf(&b, "static_assert(%s == %d, \"%s\");\n", name, number, name)
	}
	for _, s := range lifecycle.States() {
		is("CARILLON_STATE_"+strings.ToUpper(s.String()), int(s))
	}
	is("CARILLON_CALL_NONE", int(lifecycle.CallNone))
	for _, c := range lifecycle.Calls() {
		is("CARILLON_CALL_"+strings.ToUpper(c.String()), int(c))
	}
	is("CARILLON_EVENT_NONE", int(lifecycle.EventNone))
	for _, e := range lifecycle.Events() {
		is("CARILLON_EVENT_"+strings.ToUpper(e.String()), int(e))
	}
	for _, c := range lifecycle.Codes() {
		is("CARILLON_CODE_"+strings.ToUpper(c.String()), int(c))
	}
	is("CARILLON_NUM_STATES", len(lifecycle.States()))
	is("CARILLON_NUM_CALLS", 1+len(lifecycle.Calls()))
	is("CARILLON_NUM_EVENTS", 1+len(lifecycle.Events()))
	is("CARILLON_NUM_CODES", len(lifecycle.Codes()))
	return b.String()
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, stderr.String())
	}
	return string(out)
}

// differ fails at the first line in which two texts differ.
func differ(t *testing.T, says, want, got string) {
	t.Helper()
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(wants), len(gots)) {
		if wants[i] != gots[i] {
			t.Fatalf("%s %d is %q; want %q", says, i+1, gots[i], wants[i])
		}
	}
	if len(wants) != len(gots) {
		t.Fatalf("%s %d is missing on one side: %d lines; want %d",
			says, min(len(wants), len(gots))+1, len(gots), len(wants))
	}
}
