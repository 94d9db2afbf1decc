package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// TestPySpyIsBounded: a py-spy that doesn't end, prints too much or prints something else does no harm.
func TestPySpyIsBounded(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for name, script := range map[string]string{
		"hangs":           "sleep 1000",
		"leaves a child":  "setsid sleep 30 & exit 0",
		"endless":         "yes",
		"no JSON":         "echo Error",
		"fails":           "echo '[]'; exit 1",
		"no such process": "exit 1",
	} {
		t.Run(name, func(t *testing.T) {
			pid := filepath.Join(t.TempDir(), "pid")
			text := "#!/bin/sh\necho $$ >" + pid + "\n" + script + "\n"
			if err := os.WriteFile(filepath.Join(dir, "py-spy"), []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, calls, err := pythonStack(t.Context(), os.Getpid())
			if err == nil || len(calls) > 0 {
				t.Errorf("it tells %q, %v", calls, err)
			}
			if took := time.Since(began); took > 2*pySpyTime {
				t.Errorf("it took %v", took)
			}
			told, err := os.ReadFile(pid)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat("/proc/" + strings.TrimSpace(string(told))); err == nil {
				t.Error("it runs still")
			}
		})
	}
}

// TestThreadThatCallsNCCL: of the threads that py-spy prints, the one that calls NCCL is shown, or else the main one.
func TestThreadThatCallsNCCL(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	thread := func(id, name string, frames ...string) string {
		return fmt.Sprintf(`{"os_thread_id": %s, "thread_name": %q, "frames": [%s]}`, id, name,
			strings.Join(frames, ", "))
	}
	const (
		backward = `{"name": "backward", "filename": "/torch/autograd/__init__.py", "line": 9}`
		reduce   = `{"name": "all_reduce", "filename": "/torch/distributed/distributed_c10d.py", "line": 7}`
		hook     = `{"name": "hook", "filename": "/t/train.py", "line": 8}`
		save     = `{"name": "save", "filename": "/t/save.py", "line": 3}`
	)
	for name, c := range map[string]struct {
		threads []string
		thread  string
		calls   []string
	}{
		"of autograd": {
			[]string{
				thread("$5", "MainThread", backward), thread("7", "Thread-2", save),
				thread("8", "pt_autograd_0", reduce, hook),
			},
			"pt_autograd_0",
			[]string{"all_reduce (distributed_c10d.py:7)", "hook (train.py:8)"},
		},
		"without a name": {
			[]string{thread("$5", "", backward), thread("8", "", reduce)},
			"8",
			[]string{"all_reduce (distributed_c10d.py:7)"},
		},
		"the main thread, too": {
			[]string{thread("8", "pt_autograd_0", reduce, hook), thread("$5", "MainThread", reduce)},
			"",
			[]string{"all_reduce (distributed_c10d.py:7)"},
		},
		"none": {
			[]string{thread("7", "Thread-2", save, save, save, reduce), thread("$5", "MainThread", backward)},
			"",
			[]string{"backward (__init__.py:9)"},
		},
		"no threads": {nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			text := "#!/bin/sh\ncat <<END\n[" + strings.Join(c.threads, ", ") + "]\nEND\n"
			if err := os.WriteFile(filepath.Join(dir, "py-spy"), []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
			thread, calls, err := pythonStack(t.Context(), os.Getpid())
			if err != nil || thread != c.thread || !slices.Equal(calls, c.calls) {
				t.Errorf("it tells %q of thread %q, %v; want %q of %q", calls, thread, err, c.calls, c.thread)
			}
		})
	}
}

// TestWhomAVerdictSuspects: for a verdict, its culprits are examined or, if it has none, the first waiting ranks; each
// one once, even if it comes and goes.
func TestWhomAVerdictSuspects(t *testing.T) {
	kept := func(name string) *keptProcess {
		return &keptProcess{observed: observed{telemetry: &Telemetry{self: mesh.Member{Name: name}}}}
	}
	a, b, c := kept("a"), kept("b"), kept("c")
	j := &keptJob{kept: []*keptProcess{a, b, c}}
	named := func(members ...string) (ranks []verdict.Rank, waits []verdict.Wait) {
		for i, m := range members {
			ranks = append(ranks, verdict.Rank{Job: i, Member: m})
			waits = append(waits, verdict.Wait{Rank: ranks[i]})
		}
		return ranks, waits
	}
	hang := func(members ...string) verdict.Verdict {
		_, waits := named(members...)
		return verdict.Verdict{ID: "hang", Victims: waits}
	}
	culprit := verdict.Verdict{ID: "culprit", Victims: hang("a", "b").Victims}
	culprit.Culprits, _ = named("c")
	for i, step := range []struct {
		open []verdict.Verdict
		want []*keptProcess
	}{
		{[]verdict.Verdict{hang("elsewhere", "a", "b")}, []*keptProcess{a}},
		{[]verdict.Verdict{hang("b", "a", "elsewhere")}, []*keptProcess{b}},
		{[]verdict.Verdict{hang("c", "elsewhere")}, []*keptProcess{c}},
		{[]verdict.Verdict{hang("a", "b", "c")}, nil},
		{nil, nil},
		{[]verdict.Verdict{culprit}, []*keptProcess{c}},
		{[]verdict.Verdict{culprit, hang("a", "a", "b")}, []*keptProcess{a, b}},
	} {
		if got := j.suspect(step.open); !slices.Equal(got, step.want) {
			t.Errorf("step %d: it looks at %d processes, want %d", i, len(got), len(step.want))
		}
	}
}
