package attach_test

import (
	"debug/elf"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// bench has what the tests of the whole library run: the library, a stub of NCCL, and programs that call NCCL.
type bench struct {
	dir            string
	library, audit string
}

// built is set once a test has built them.
var built *bench

// build compiles them all, for all tests.
func build(t testing.TB) *bench {
	t.Helper()
	if built != nil {
		return built
	}
	b := &bench{dir: filepath.Join(filepath.Dir(player), "bench")}
	b.library = filepath.Join(b.dir, "libcarillon-nccl.so")
	b.audit = filepath.Join(b.dir, "libcarillon-audit.so")
	run(t, "make", "-C", "../..", "CC=cc -DDRAIN_MS=20", "BIN="+b.dir, b.library, b.audit)
	b.compile(t, "libnccl.so.2", "-shared", "-Wl,-soname,libnccl.so.2", "testdata/stub.c")
	stub := []string{"-L" + b.dir, "-l:libnccl.so.2", "-Wl,-rpath," + b.dir, "-pthread", "-rdynamic"}
	b.compile(t, "linked", append([]string{"testdata/driver.c"}, stub...)...)
	b.compile(t, "driver.so", append([]string{"-shared", "-DSHARED", "testdata/driver.c"}, stub...)...)
	b.compile(t, "loader", "testdata/loader.c")
	built = b
	return b
}

func (b *bench) compile(t testing.TB, name string, args ...string) {
	t.Helper()
	flags := []string{"-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fPIC"}
	run(t, "cc", append(append(flags, "-o", filepath.Join(b.dir, name)), args...)...)
}

func run(t testing.TB, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

// drive makes a program make calls, and returns its output and the folder of the tape.
func (b *bench) drive(t testing.TB, loaded bool, script string, env ...string) (output, tapes string) {
	t.Helper()
	tapes = t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join(b.dir, "linked"))
	if loaded {
		cmd = exec.CommandContext(t.Context(), filepath.Join(b.dir, "loader"), filepath.Join(b.dir, "driver.so"))
	}
	cmd.Env = append([]string{"LD_PRELOAD=" + b.library, "CARILLON_TAPE_DIR=" + tapes}, env...)
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		out = fmt.Appendf(out, "%v\n", failed)
	} else if err != nil {
		t.Fatal(err)
	}
	return string(out), tapes
}

// readEvents yields the events on the tapes of a folder.
func readEvents(t testing.TB, dir string) iter.Seq[*tape.Event] {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*.tape"))
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(*tape.Event) bool) {
		for _, path := range paths {
			r, err := tape.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.Close() }() // it was only read
			for ev, err := range r.Events() {
				if err != nil {
					t.Fatal(err)
				}
				if !yield(&ev) {
					return
				}
			}
		}
	}
}

// readTapes returns the records on the tapes of a folder, one a line.
func readTapes(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	for ev := range readEvents(t, dir) {
		tell(&b, ev)
	}
	return b.String()
}

// offset matches what differs from compiler to compiler.
var offset = regexp.MustCompile(`\+0x[0-9a-f]+`)

func tell(b *strings.Builder, ev *tape.Event) {
	fmt.Fprintf(b, "tape: %s %d/%d ", ev.Comm.Name, ev.Comm.Rank, ev.Comm.Size)
	if !ev.IsLife {
		op := &ev.Op
		fmt.Fprintf(b, "%v %d: %v %v, %d B\n", op.Signature.Call, op.Seq, op.Stage, op.Code, op.Signature.Bytes)
		return
	}
	l := &ev.Life
	fmt.Fprintf(b, "%v %v", l.Act, l.Stage)
	if l.Seq != 0 {
		fmt.Fprintf(b, " #%d", l.Seq)
	}
	if l.Code != lifecycle.CodeOK {
		fmt.Fprintf(b, " %v", l.Code)
	}
	if l.Phase != tape.PhaseNone {
		fmt.Fprintf(b, " %v", l.Phase)
	}
	fmt.Fprintf(b, ", %v", l.State)
	for _, site := range []struct {
		says string
		lifecycle.Site
	}{{"at", l.Site}, {"first at", l.First}} {
		if !site.IsZero() {
			fmt.Fprintf(b, ", %s %s", site.says, offset.ReplaceAllString(site.Func, "+…"))
		}
	}
	if l.Shared {
		b.WriteString(", shared")
	}
	if l.Text != "" {
		fmt.Fprintf(b, ": %s", l.Text)
	}
	b.WriteByte('\n')
}

// TestGuards plays the files in testdata/guards: a program's calls, the resulting calls of NCCL, the answers that the
// program gets, and the records on the tape.
//
//	run [version=CODE] [guard=VALUE] [loaded] [notape]   makes the driver make the calls; see testdata/driver.c
func TestGuards(t *testing.T) {
	b := build(t)
	datadriven.Walk(t, "testdata/guards", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var env []string
			var version, guard string
			if d.MaybeScanArgs(t, "version", &version); version != "" {
				env = append(env, "STUB_VERSION="+version)
			}
			if d.MaybeScanArgs(t, "guard", &guard); guard != "" {
				env = append(env, "CARILLON_GUARD="+guard)
			}
			if d.HasArg("notape") {
				env = append(env, "CARILLON_JOB=.")
			}
			out, tapes := b.drive(t, d.HasArg("loaded"), d.Input+"\n", env...)
			return out + readTapes(t, tapes)
		})
	})
}

// A function that isn't exported, and one whose name is too long for the tape, are recorded by their address in the
// file that contains the call.
func TestSites(t *testing.T) {
	b := build(t)
	stub := []string{"testdata/driver.c", "-L" + b.dir, "-l:libnccl.so.2", "-Wl,-rpath," + b.dir, "-pthread"}
	long := strings.Repeat("run", 100)
	b.compile(t, "hidden", stub...)
	b.compile(t, "long", append(stub, "-rdynamic", "-Drun="+long)...)
	for _, c := range []struct{ program, library, want string }{
		{"hidden", "", "run+… in hidden+…"},
		{"long", "", long + "+… in long+…"},
		{"loader", "./driver.so", "run+… in driver.so+…"},
	} {
		tapes := t.TempDir()
		cmd := exec.CommandContext(t.Context(), filepath.Join(b.dir, c.program))
		if c.library != "" {
			cmd.Args = append(cmd.Args, c.library)
		}
		cmd.Dir, cmd.Env = b.dir, []string{"LD_PRELOAD=" + b.library, "CARILLON_TAPE_DIR=" + tapes}
		cmd.Stdin = strings.NewReader("init w\ndestroy w\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c.program, err, out)
		}
		got := ""
		for ev := range readEvents(t, tapes) {
			if ev.IsLife && ev.Life.Act == tape.ActDestroy && ev.Life.Stage == tape.StageStart {
				got = offset.ReplaceAllString(ev.Life.Site.Func, "+…")
			}
		}
		if got != c.want {
			t.Errorf("%s: at %s, want %s", c.program, got, c.want)
		}
	}
}

// Communicators of a group beyond those that there is room for stop counting their messages.
func TestLargeGroup(t *testing.T) {
	const names = "abcdefghijklmnopqrstuvwxyzABCDEFGHI"
	var script strings.Builder
	each := func(call string) {
		for _, name := range names {
			fmt.Fprintf(&script, "%s %c\n", call, name)
		}
	}
	each("init")
	script.WriteString("group_start\n")
	each("all_reduce")
	script.WriteString("group_end\n")
	each("destroy")
	output, tapes := build(t).drive(t, false, script.String())
	counted := ""
	for ev := range readEvents(t, tapes) {
		if ev.IsLife && ev.Life.Act == tape.ActDestroy && ev.Life.Messages != nil {
			counted += ev.Comm.Name
		}
	}
	if counted != names[:32] {
		t.Errorf("counted are %q\n%s", counted, output)
	}
}

// Every NCCL function that takes a communicator, or is about groups, is interposed, and so is its twin.
func TestInterposed(t *testing.T) {
	f, err := elf.Open(build(t).library)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	has := make(map[string]bool)
	for _, s := range symbols {
		has[s.Name] = s.Section != elf.SHN_UNDEF
	}
	table, err := os.ReadFile("nccl-api.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		cells := strings.Split(line, "\t")
		if cells[0] != "function" || cells[1] == "ncclGetLastError" { // a dead communicator may be passed
			continue
		}
		if strings.Contains(cells[4], "ncclComm_t") || strings.HasPrefix(cells[1], "ncclGroup") {
			for _, name := range []string{cells[1], "p" + cells[1]} {
				if !has[name] {
					t.Errorf("%s is not interposed", name)
				}
			}
		}
	}
}

// BenchmarkCall is the cost of an all-reduce for which NCCL does nothing: alone, with the guards, with the tape, and
// with an audited loader, too.
func BenchmarkCall(b *testing.B) {
	compiled := build(b)
	for _, c := range []struct {
		name string
		env  []string
	}{
		{"nccl", []string{"LD_PRELOAD="}},
		{"guards", []string{"CARILLON_JOB=."}},
		{"tape", nil},
		{"audit", []string{"LD_AUDIT=" + compiled.audit}},
	} {
		b.Run(c.name, func(b *testing.B) {
			out, _ := compiled.drive(b, false, fmt.Sprintf("init w\ncalls %d\ndestroy w\n", b.N), c.env...)
			_, took, found := strings.Cut(out, "calls: ")
			var ns float64
			if _, err := fmt.Sscanf(took, "%f ns", &ns); !found || err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			b.ReportMetric(ns, "ns/op")
		})
	}
}

// BenchmarkBegin is the processor time that a process takes to begin and end: alone, with the library preloaded, and
// with an audited loader, too. It is the least of all rounds.
func BenchmarkBegin(b *testing.B) {
	compiled := build(b)
	preload := "LD_PRELOAD=" + compiled.library
	for _, c := range []struct {
		name string
		env  []string
	}{
		{"nccl", nil},
		{"preload", []string{preload}},
		{"audit", []string{preload, "LD_AUDIT=" + compiled.audit}},
	} {
		b.Run(c.name, func(b *testing.B) {
			least := time.Hour
			for b.Loop() {
				cmd := exec.CommandContext(b.Context(), filepath.Join(built.dir, "linked"))
				cmd.Env = append(os.Environ(), c.env...)
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("%v\n%s", err, out)
				}
				least = min(least, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
			}
			b.ReportMetric(float64(least.Microseconds()), "least-us")
		})
	}
}
