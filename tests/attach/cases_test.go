package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// languages are the languages of the cases' programs, with the commands that run them with four ranks, and the sites of
// their calls.
var languages = []struct {
	name    string
	site    func(t *testing.T) string
	command func(t *testing.T, program string) []string
}{
	{"C", func(*testing.T) string { return `^run_rank\+0x.* $` }, func(t *testing.T, program string) []string {
		t.Helper()
		return []string{fakenccl.Program(t, built, program), "processes", "4"}
	}},
	{"Python", pythonSite, func(_ *testing.T, program string) []string {
		return []string{"python3", filepath.Join("testdata", "cases.py"), program, "4"}
	}},
}

// TestCases runs programs that crash a version of NCCL. With the library in front of NCCL they survive, and the spans
// of every rank say why: a call was refused, with both call sites, or something was done before a call.
func TestCases(t *testing.T) {
	t.Parallel()
	library := buildLibrary(t)
	cases := []struct {
		name, version, program string
		env                    []string
		span, says             string // of a refused call; both call sites are in the same function
		does                   string // or of a phase: what was done in it, and why
		other                  string // a plug-in of the program
	}{
		{
			name: "destroyed twice", version: "2.28.9", program: "double_destroy", env: []string{"FAKENCCL_HEAP=dirty"},
			span: "ccl.comm.destroy", says: "was destroyed before",
		},
		{
			name: "split with an unfinished group job", version: "2.25.1", program: "split_unfinished",
			span: "ccl.comm.split.queued", does: "group job was completed first: .*NVIDIA/nccl#1605",
		},
		{
			// A plug-in beside ours dereferences the pointer that it gets.
			name: "another rank's context for a profiler plug-in", version: "2.23.4", program: "traffic",
			env:   []string{"NODES=node", "PLUGIN_MASK=0x1f"},
			other: fakenccl.Program(t, built, "plugin.so"),
		},
	}
	for i := range len(cases) * len(languages) {
		c, in := cases[i/len(languages)], languages[i%len(languages)]
		t.Run(c.name+" in "+in.name, func(t *testing.T) {
			const ranks = 4
			without, with := "", []string{"LD_PRELOAD=" + library, "NCCL_PROFILER_PLUGIN=" + library}
			if c.other != "" {
				without = "NCCL_PROFILER_PLUGIN=" + c.other
				with = append(with, "CARILLON_PROFILER_NEXT="+c.other)
			}
			start := func(env ...string) (string, error) {
				command := in.command(t, c.program)
				cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
				cmd.Env = append(append(os.Environ(), "LD_LIBRARY_PATH="+fakenccl.Build(t, built, c.version)), c.env...)
				cmd.Env = append(cmd.Env, env...)
				printed, err := cmd.CombinedOutput()
				return string(printed), err
			}
			printed, err := start(without)
			failed := (*exec.ExitError)(nil)
			if !errors.As(err, &failed) || !strings.Contains(printed, "killed by signal") {
				t.Fatalf("without the library: %v\n%s", err, printed)
			}
			tapes := t.TempDir()
			if printed, err = start(append(with, "CARILLON_TAPE_DIR="+tapes)...); err != nil {
				t.Fatalf("with the library: %v\n%s", err, printed)
			}
			if c.other != "" && strings.Count(printed, "v1 rank ") < ranks {
				t.Errorf("the other plug-in was not told of each rank:\n%s", printed)
			}
			paths, err := filepath.Glob(filepath.Join(tapes, "*", "*.tape"))
			if err != nil || len(paths) != ranks {
				t.Fatalf("%d tapes, %v", len(paths), err)
			}
			told := make(map[string]uint64)
			for _, path := range paths {
				spans, unexpected := project(t, path)
				for kind, n := range unexpected.All {
					told[kind] += n
				}
				if c.says != "" && !refused(spans, c.span, c.says, in.site(t)) {
					t.Errorf("no span %s says %q: %+v", c.span, c.says, spans)
				}
				if !slices.ContainsFunc(spans, func(s trace.Span) bool {
					return s.Name == "ccl.comm.destroy" && s.Error == ""
				}) {
					t.Errorf("no span says that a communicator was destroyed: %+v", spans)
				}
				does := regexp.MustCompile(c.does)
				if c.does != "" && !slices.ContainsFunc(spans, func(s trace.Span) bool {
					return s.Name == c.span && does.MatchString(s.Attributes.Get(semconv.PhaseReason))
				}) {
					t.Errorf("no span %s says %q: %+v", c.span, c.does, spans)
				}
			}
			if (told["no_communicator"] > 0) != (c.other != "") {
				t.Errorf("events of other ranks' contexts: %v", told)
			}
			if c.does != "" {
				after := e2e.Start(t, nil, "carillon", "postmortem", "--last", "0", tapes)
				after.Await(`split 1 is in queued: .*` + c.does)
			}
		})
	}
}

// pythonSite is the site of a call in Python: the line, if this version of the interpreter tells it, or else libffi,
// which may have no symbols.
func pythonSite(t *testing.T) string {
	t.Helper()
	const asks = `import ctypes
names = "_Py_DumpTraceback", "PyUnstable_DumpTraceback"
print(any(hasattr(ctypes.pythonapi, name) for name in names))`
	answer, err := exec.CommandContext(t.Context(), "python3", "-c", asks).Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(answer)) == "True" {
		return `^case_[a-z_]+ .*/cases\.py [0-9]+$`
	}
	return `\+0x.* $`
}

// TestPolledInit: before 2.27.3, a status query to NCCL's RAS during an init crashes the job. The agent never makes one
// then, and its spans and verdict still say which rank is missing.
func TestPolledInit(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	for _, in := range languages {
		t.Run(in.name, func(t *testing.T) {
			address, tapes := e2e.FreeAddr(t), t.TempDir()
			late := func(command ...string) (job *e2e.Job, end func()) {
				input, end := openInput(t)
				command = append(command, "sh", "-c", `exec "$@" <`+input, "sh")
				command = append(command, in.command(t, "held")...)
				return e2e.Start(t, []string{
					"LATE=1", "NCCL_RAS_ADDR=" + address, "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.26.5"),
					"CARILLON_HEALTH_ADDR=", "CARILLON_STALL_THRESHOLD=500ms", "OTEL_TRACES_EXPORTER=console",
				}, command[0], command[1:]...), end
			}
			polled, _ := late("env")
			askRAS(t, address)
			polled.Await(`killed by signal`)
			polled.ExitCode()

			job, end := late("carillon", "attach", "--tape-dir", tapes, "--accept-nccl-bugs", "1762,1996", "--")
			report(t, `"reason": "not_joined"[^§]*3 of 4 `, tapes)
			job.Await(`"Name":"ccl\.stall".*rank 3 has not joined the init of `) // once the verdict is known
			end()
			if code := job.ExitCode(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// askRAS asks for a status as soon as a process listens, until that process ends.
func askRAS(t *testing.T, address string) {
	t.Helper()
	for {
		conn, err := net.Dial("tcp", address)
		if errors.Is(err, syscall.ECONNREFUSED) { // no process listens yet
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "CLIENT PROTOCOL 2\nTIMEOUT 5\nVERBOSE STATUS\n")
		_, _ = io.ReadAll(conn)
		conn.Close()
		return
	}
}

// refused looks for the span of a refused call, with both call sites: function, file and line.
func refused(spans []trace.Span, name, says, site string) bool {
	at := regexp.MustCompile(site)
	for _, s := range spans {
		of := func(function, file, line attribute.Key) string {
			where := []string{s.Attributes.Get(function), s.Attributes.Get(file), s.Attributes.Get(line)}
			return strings.Join(where, " ")
		}
		if s.Name == name && strings.Contains(s.Error, says) &&
			at.MatchString(of(semconv.CodeFunction, semconv.CodeFile, semconv.CodeLine)) &&
			at.MatchString(of(semconv.FirstFunction, semconv.FirstFile, semconv.FirstLine)) {
			return true
		}
	}
	return false
}

// project turns a tape into spans. Each communicator is on it only once, although two parts of the library see it.
func project(t *testing.T, path string) (spans []trace.Span, unexpected tape.Unexpected) {
	t.Helper()
	r, err := tape.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	process := model.New(model.Limits{})
	header := r.Header()
	p, err := trace.New(t.Context(), trace.Config{Process: process, Wall: header.Wall})
	if err != nil {
		t.Fatal(err)
	}
	inits := make(map[string]int)
	for ev, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if ev.IsLife && ev.Life.Act == tape.ActInit && ev.Life.Stage == tape.StageEnd {
			inits[ev.Comm.ID.String()]++
		}
		step := process.Apply(&ev)
		p.Observe(&step)
	}
	for id, n := range inits {
		if n != 1 {
			t.Errorf("communicator %s was made %d times", id, n)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	for _, tr := range p.Store().Acts(100) {
		spans = append(spans, tr.Spans...)
	}
	if err := p.Close(context.Background()); err != nil {
		t.Error(err)
	}
	return spans, r.Header().Unexpected
}
