package attach

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestCases runs programs that end the processes of a version of NCCL. With the library before NCCL they go on, and the
// spans of every rank say why: a call that was refused, with both call sites, or what was done before a call.
func TestCases(t *testing.T) {
	library := buildLibrary(t)
	for _, c := range []struct {
		name, version, program string
		env                    []string
		span, says             string // of a refused call
		does                   string // or what an act is told to have done
	}{
		{
			name: "destroyed twice", version: "2.28.9", program: "double_destroy", env: []string{"FAKENCCL_HEAP=dirty"},
			span: "ccl.comm.destroy", says: "was destroyed before",
		},
		{
			name: "split with an unfinished group job", version: "2.25.1", program: "split_unfinished",
			does: "NVIDIA/nccl#1605",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			const ranks = 4
			start := func(env ...string) (string, error) {
				cmd := exec.CommandContext(t.Context(), fakenccl.Program(t, built, c.program), "processes", "4")
				cmd.Env = append(append(os.Environ(), "LD_LIBRARY_PATH="+fakenccl.Build(t, built, c.version)), c.env...)
				cmd.Env = append(cmd.Env, env...)
				printed, err := cmd.CombinedOutput()
				return string(printed), err
			}
			printed, err := start()
			failed := (*exec.ExitError)(nil)
			if !errors.As(err, &failed) || !strings.Contains(printed, "killed by signal") {
				t.Fatalf("without the library: %v\n%s", err, printed)
			}
			tapes := t.TempDir()
			if printed, err = start("CARILLON_TAPE_DIR="+tapes, "LD_PRELOAD="+library,
				"NCCL_PROFILER_PLUGIN="+library); err != nil {
				t.Fatalf("with the library: %v\n%s", err, printed)
			}
			paths, err := filepath.Glob(filepath.Join(tapes, "*", "*.tape"))
			if err != nil || len(paths) != ranks {
				t.Fatalf("%d tapes, %v", len(paths), err)
			}
			for _, path := range paths {
				spans, acts := project(t, path)
				if c.says != "" && !refused(spans, c.span, c.says) {
					t.Errorf("no span %s says %q: %+v", c.span, c.says, spans)
				}
				if c.does != "" && !strings.Contains(strings.Join(acts, "\n"), c.does) {
					t.Errorf("no act says %q: %q", c.does, acts)
				}
			}
		})
	}
}

// refused looks for the span of a call that was refused, with both call sites.
func refused(spans []trace.Span, name, says string) bool {
	for _, s := range spans {
		if s.Name == name && strings.Contains(s.Error, says) && s.Attributes.Get(semconv.FirstFunction) != "" {
			return true
		}
	}
	return false
}

// project turns a tape into spans, and what its acts' phases are told with. Each communicator is on it once, although
// two parts of the library are told of it.
func project(t *testing.T, path string) (spans []trace.Span, acts []string) {
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
		if ev.IsLife && ev.Life.Stage == tape.StagePhase {
			acts = append(acts, ev.Life.Text)
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
	return spans, acts
}
