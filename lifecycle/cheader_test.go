package lifecycle_test

import (
	_ "embed" // the header's template
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
)

// The C header has states, calls, events, codes and tables, for programs that keep a communicator's rules without Go.
// The comments of constants come from the source, everything else from the package itself.
//
//go:embed testdata/carillon_lifecycle.h.tmpl
var cHeaderTemplate string

// compilers are the compilers with which the header is tested: C's must exist, the others are used if they are
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

// installed returns the installed ones of compilers, with flags that turn every warning into an error.
func installed(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, c := range compilers {
		if _, err := exec.LookPath(c.command); err == nil {
			found[c.command] = append([]string{
				"-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror", "-I.",
			}, c.flags...)
		} else if c.must {
			t.Fatalf("the tests need %s: %v", c.command, err)
		}
	}
	return found
}

// TestCHeaderIsCurrent keeps the header equal to the package. Datadriven's -rewrite writes it anew.
func TestCHeaderIsCurrent(t *testing.T) {
	datadriven.RunTestFromString(t, "carillon_lifecycle.h\n----\n", func(t *testing.T, d *datadriven.TestData) string {
		current := headerForC(t)
		if d.Rewrite {
			if err := os.WriteFile(d.Cmd, []byte(current), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		recorded, err := os.ReadFile(d.Cmd)
		if err != nil {
			t.Fatal(err)
		}
		return cmp.Diff(strings.Split(string(recorded), "\n"), strings.Split(current, "\n"))
	})
}

// TestCAgreesWithGo calls the header's functions with all possible arguments, including unknown numbers, and compares
// with Go's answers.
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
			if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(run(t, program), "\n")); diff != "" {
				t.Errorf("C and Go disagree (-Go +C):\n%s", diff)
			}
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
	n := readNotes(t)
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
}

// answers is the expected output of testdata/dump.c.
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

// known is the name of v if v is one of all or more, and else C's answer for an unknown number.
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

// stay is the cell of a table that is legal and changes no state. It lies above all states and below all errors' codes.
const stay = 99

// kind is a kind of numbers: states, calls, events or codes.
type kind struct {
	Name, Says string
	Holder     string // The C type is an integer and not the enum, so that a later version's number is a value, too.
	All        []constant
}

type constant struct {
	Name, Note   string
	Number, NCCL int
}

// table has a line for each call or event, in which each state has a cell.
type table struct {
	Says, Rows string
	Lines      []string
}

func headerForC(t *testing.T) string {
	t.Helper()
	n := readNotes(t)
	calls := append([]lifecycle.Call{lifecycle.CallNone}, lifecycle.Calls()...)
	events := append([]lifecycle.Event{lifecycle.EventNone}, lifecycle.Events()...)
	data := map[string]any{
		"Kinds": []kind{
			{"state", "Where a communicator is in its life.", "uint8_t", constants(n, "State", lifecycle.States())},
			{"call", "Something that a user does to a communicator.", "uint8_t", constants(n, "Call", calls)},
			{
				"event", "Something that the runtime makes happen to a communicator.", "uint8_t",
				constants(n, "Event", events),
			},
			{"code", "The stable number of an error.", "uint16_t", constants(n, "Code", lifecycle.Codes())},
		},
		"Tables": []table{
			{
				"What becomes of a communicator that is in a state (column) when its user makes a call (row).", "call",
				lines(calls, lifecycle.Next),
			},
			{
				"What becomes of a communicator that is in a state (column) when something happens (row). No event " +
					"is an error.",
				"event", lines(events, func(s lifecycle.State, e lifecycle.Event) (lifecycle.State, lifecycle.Code) {
					return lifecycle.After(s, e), lifecycle.CodeOK
				}),
			},
		},
		"Stay": stay, "NCCLInternal": lifecycle.CodeInternal.NCCL(),
	}
	var header strings.Builder
	in := template.Must(template.New("").Funcs(template.FuncMap{"upper": strings.ToUpper}).Parse(cHeaderTemplate))
	if err := in.Execute(&header, data); err != nil {
		t.Fatal(err)
	}
	return header.String()
}

// number is a State, Call, Event or Code.
type number interface {
	~uint8 | ~uint16
	fmt.Stringer
}

func constants[T number](n notes, kind string, all []T) []constant {
	list := make([]constant, len(all))
	for i, v := range all {
		list[i] = constant{v.String(), n.of(kind, v.String()), int(v), lifecycle.Code(v).NCCL()}
	}
	return list
}

// lines returns a table's lines, below a line with the states' numbers.
func lines[T number](rows []T, next func(lifecycle.State, T) (lifecycle.State, lifecycle.Code)) []string {
	width := 0
	for _, row := range rows {
		width = max(width, len(row.String()))
	}
	head := fmt.Sprintf("/* %-*s ", width, "state")
	for _, s := range lifecycle.States() {
		head += fmt.Sprintf("%5d", s)
	}
	all := []string{head + " */"}
	for _, row := range rows {
		var cells []string
		for _, s := range lifecycle.States() {
			to, code := next(s, row)
			cell := int(to)
			switch {
			case code != lifecycle.CodeOK:
				cell = int(code)
			case to == s:
				cell = stay
			}
			cells = append(cells, fmt.Sprintf("%3d", cell))
		}
		all = append(all, fmt.Sprintf("/* %-*s */ {%s},", width, row, strings.Join(cells, ", ")))
	}
	return all
}

// notes are the comments behind the constants of package lifecycle, by the constant's name in lower case.
type notes map[string]string

// readNotes reads the notes from the package's source.
func readNotes(t *testing.T) notes {
	t.Helper()
	all := notes{}
	for _, name := range []string{"state.go", "code.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && spec.Comment != nil {
				all[strings.ToLower(spec.Names[0].Name)] = strings.TrimSpace(spec.Comment.Text())
			}
			return true
		})
	}
	return all
}

// of is the note on the constant of a kind ("State") with a stable name ("all_reduce"), or nothing. Go's names are
// these names without the underscores.
func (n notes) of(kind, name string) string {
	return n[strings.ToLower(kind)+strings.ReplaceAll(name, "_", "")]
}
