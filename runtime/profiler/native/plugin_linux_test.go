//go:build cgo

package native_test

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/runtime/profiler/native"
)

// compile makes a library from a source.
func compile(t *testing.T, name, source string, flags ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name+".so")
	flags = append(flags, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", path,
		source)
	if out, err := exec.CommandContext(t.Context(), "cc", flags...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// work is the work of a rank: an all-reduce with a proxied operation, and a proxied operation that belongs to another
// process.
func work(c *profiler.Comm) {
	op := c.StartOperation(0, &profiler.Operation{
		Call: lifecycle.CallAllReduce, Count: 3, Peer: -1, DataType: kernels.Float32, Algorithm: "ring",
	})
	mine := &profiler.ProxyOperation{Owner: c.Owner(), Peer: 1, Steps: 1, IsSend: true}
	proxied := c.StartProxyOp(mine, profiler.ProxyOpInProgress)
	step := c.StartProxyStep(proxied, mine.Owner, 0, profiler.SendWait, 12)
	c.Stop(step, lifecycle.CodeOK)
	c.Stop(proxied, lifecycle.CodeOK)
	foreign := *mine
	foreign.Owner.PID++
	c.Stop(c.StartProxyOp(&foreign, 0), lifecycle.CodeOK)
	c.Stop(op, lifecycle.CodeOK)
}

// A library of each version gets the events that it asks for, in its version's format, with its own handles, alongside
// other libraries.
func TestVersions(t *testing.T) {
	const record = "../../attach/testdata/profiler/recorder.c"
	var plugins []profiler.Plugin
	dir := t.TempDir()
	for v := 1; v <= 7; v++ {
		name := fmt.Sprintf("v%d", v)
		plugins = append(plugins, native.New(compile(t, name, record, "-DMASK=0x18", // proxy operations and steps
			fmt.Sprintf("-DVERSION=%d", v), "-DNAME="+name)))
		t.Setenv("RECORD_"+name, filepath.Join(dir, name))
	}
	p := profiler.New(profiler.Config{Plugins: plugins, Log: slog.New(slog.DiscardHandler)})
	info := profiler.Info{Name: "dp", Rank: 1, Size: 4, Nodes: 2}
	info.ID[7] = 0xab
	comm := p.Comm(t.Context(), info)
	work(comm)
	comm.Close()
	p.Close(t.Context())
	for _, s := range p.Status() {
		if s.Off != "" {
			t.Errorf("%s is off: %s", s.Name, s.Off)
		}
	}
	old := `init 1%[1]s
start 1 2 type=1 parent=0
start 1 3 type=2 parent=2 group=0 AllReduce 3 ncclFloat32
start 1 4 type=8 parent=3
%[2]sstart 1 5 type=16 parent=4
state 5 9
stop 5
stop 4
start 1 6 type=8 parent=0
stop 6
stop 3
stop 2
finalize 1`
	for v := 1; v <= 7; v++ {
		got, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("v%d", v)))
		if err != nil {
			t.Fatal(err)
		}
		want := `init 1 ab dp 2 4 1
start 1 2 type=256 parent=0
state 2 23
state 2 24
start 1 3 type=512 parent=2
stop 3
start 1 4 type=1 parent=0
start 1 5 type=2 parent=3 group=4 AllReduce 3 ncclFloat32
start 1 6 type=8 parent=5
state 6 19
start 1 7 type=16 parent=6
state 7 9
stop 7
stop 6
start 1 8 type=8 parent=0
stop 8
stop 5
stop 4
stop 2
finalize 1`
		switch {
		case v < 4:
			want = fmt.Sprintf(old, "", "")
		case v == 4:
			want = fmt.Sprintf(old, " ab dp 2 4 1", "state 4 19\n")
		}
		if diff := cmp.Diff(want, strings.TrimSpace(string(got))); diff != "" {
			t.Errorf("version %d (-want +got):\n%s", v, diff)
		}
	}
}

// A plug-in that can't run is left out, with one log line that says why; the others continue.
func TestLeftOut(t *testing.T) {
	const record = "../../attach/testdata/profiler/recorder.c"
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RECORD_good", filepath.Join(t.TempDir(), "good"))
	t.Setenv("REFUSE_refuses", "1")
	t.Setenv("RECORD_refuses", filepath.Join(t.TempDir(), "refuses"))
	for _, c := range []struct{ path, why string }{
		{filepath.Join(t.TempDir(), "none.so"), "its Init failed: it can't be loaded: cannot open shared object file"},
		{text, "its Init failed: it can't be loaded: "},
		{"libc.so.6", "its Init failed: it can't be loaded: it has none of ncclProfiler_v1 to ncclProfiler_v7"},
		{compile(t, "lacks", "testdata/bad.c", "-DLACKS"), "its newest version lacks a function"},
		{
			compile(t, "refuses", record, "-DVERSION=4", "-DMASK=2", "-DNAME=refuses"),
			"its Init failed: its init returned 3",
		},
		{compile(t, "init", "testdata/bad.c", "-DHANGS=1"), "500ms"},
		{compile(t, "start", "testdata/bad.c", "-DHANGS=2"), "it has not returned from a call for 500ms"},
	} {
		good := native.New(compile(t, "good", record, "-DVERSION=6", "-DMASK=2", "-DNAME=good"))
		off := make(chan profiler.Status, 2)
		p := profiler.New(profiler.Config{
			Plugins: []profiler.Plugin{native.New(c.path), good}, Patience: 500 * time.Millisecond,
			Log: slog.New(slog.DiscardHandler), Off: func(s profiler.Status) { off <- s },
		})
		comm := p.Comm(t.Context(), profiler.Info{Name: "dp", Size: 1, Nodes: 1})
		work(comm)
		if s := <-off; s.Name != c.path || !strings.Contains(s.Off, c.why) {
			t.Errorf("%s is off: %s, want %q", s.Name, s.Off, c.why)
		}
		work(comm)
		comm.Close()
		p.Close(t.Context())
		if s := p.Status()[1]; s.Off != "" || s.Told == 0 {
			t.Errorf("beside %s, the other one: %+v", c.path, s)
		}
	}
}

// Errors that a plug-in returns after its init are ignored, as in NCCL: it continues to get events.
func TestErrorsAfterInit(t *testing.T) {
	p := profiler.New(profiler.Config{
		Plugins: []profiler.Plugin{native.New(compile(t, "errors", "testdata/bad.c"))},
		Log:     slog.New(slog.DiscardHandler),
	})
	comm := p.Comm(t.Context(), profiler.Info{Name: "dp", Size: 1, Nodes: 1})
	work(comm)
	comm.Close()
	p.Close(t.Context())
	if s := p.Status()[0]; s.Off != "" || s.Told == 0 {
		t.Errorf("%+v", s)
	}
}
