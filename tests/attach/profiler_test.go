package attach

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// traffic runs a program of four ranks on two nodes on a version of NCCL. It returns what its ranks 0 and 1 printed
// about a plug-in's events, and all that the program printed. The program must succeed.
func traffic(t *testing.T, version string, env ...string) (counted []string, printed string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), fakenccl.Program(t, built, "traffic"), "processes", "4")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+fakenccl.Build(t, built, version), "NODES=node")
	cmd.Env = append(cmd.Env, env...)
	both, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", version, err, both)
	}
	return counts(string(both)), string(both)
}

// counts returns what the plug-ins of ranks 0 and 1 printed about their events.
func counts(printed string) (counted []string) {
	for line := range strings.Lines(printed) {
		told := strings.Contains(line, "rank 0: ") || strings.Contains(line, "rank 1: ")
		if told && !strings.Contains(line, "of another process") {
			counted = append(counted, line)
		}
	}
	slices.Sort(counted)
	return counted
}

// TestProfilerPlugin runs the library as the profiler plug-in of each version of NCCL that has plug-ins. The operations
// of the ranks are on their tapes. A plug-in beside the library gets the same calls as without it, with three
// exceptions: operations of another process, whose pointer a plug-in of that time dereferences in NCCL 2.23
// (NVIDIA/nccl#1586); states after a stop (#1992); and a change of its mask in the first group takes effect at once
// instead of a group later, as Carillon looks into that group. In these cases, other is part of what it gets.
func TestProfilerPlugin(t *testing.T) {
	t.Parallel()
	library := buildLibrary(t)
	beside := fakenccl.Program(t, built, "plugin.so")
	for _, c := range []struct{ version, mask, other string }{
		{"2.23.4", "PLUGIN_MASK=0x1f", "v1 rank 0: proxyStep of proxyOp: "},
		{"2.24.3", "PLUGIN_MASK=0xffff", ""},
		{"2.26.2", "PLUGIN_MASK=0xffff", ""},
		{"2.27.3", "PLUGIN_MASK=0xffff", ""},
		{"2.28.9", "PLUGIN_MASK=0x2", ""},
		{"2.28.9", "PLUGIN_MASK=0x40", ""},
		{"2.28.9", "PLUGIN_MASK=0xffff", ""},
		{"2.28.9", "PLUGIN_MASK=0x302 PLUGIN_MASK_LATER=0x342", "v5 rank 0: kernelCh of coll: 6 started, 6 stopped"},
		{"2.28.9", "PLUGIN_MASK=0x18 FAKENCCL_PROXY=unpaired", "proxyStep of proxyOp: 6 started, 3 stopped, 18 states"},
		{"2.29.2", "PLUGIN_MASK=0x302", ""},
		{"2.31.2", "PLUGIN_MASK=0xffff", ""},
	} {
		t.Run(c.version+" "+c.mask, func(t *testing.T) {
			env := append(strings.Fields(c.mask), "CARILLON_TAPE_DIR="+t.TempDir(), "CARILLON_JOB=traffic")
			alone := append(env, "NCCL_PROFILER_PLUGIN="+beside)
			if c.version == "2.23.4" {
				alone = append(alone, "NCCL_PXN_DISABLE=1") // else it crashes
			}
			want, _ := traffic(t, c.version, alone...)
			got, printed := traffic(t, c.version, append(env, "NCCL_PROFILER_PLUGIN="+library,
				"CARILLON_PROFILER_NEXT="+beside)...)
			if c.other == "" && !slices.Equal(got, want) || !strings.Contains(strings.Join(got, ""), c.other) {
				t.Errorf("beside ours, the plug-in was told\n%swant\n%s", strings.Join(got, ""), strings.Join(want, ""))
			}
			if strings.Contains(printed, "left out") {
				t.Errorf("printed:\n%s", printed)
			}
			nodes := 2
			if c.version < "2.27" {
				nodes = 0 // these versions don't tell it
			}
			operations(t, env, tape.CommInfo{Engine: "nccl", Nodes: nodes})
		})
	}
}

// TestProfilerPluginNames attaches to programs whose plug-in NCCL finds by each kind of name: the plug-in gets the same
// calls as without attach.
func TestProfilerPluginNames(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	const version = "2.28.9"
	nccl, dynamic := fakenccl.Build(t, built, version), fakenccl.Program(t, built, "traffic")
	plugin, err := os.ReadFile(fakenccl.Program(t, built, "plugin.so"))
	if err != nil {
		t.Fatal(err)
	}
	static := filepath.Join(built, "traffic-static-plugin")
	cc := exec.CommandContext(t.Context(), "gcc", "-pthread", "-D_GNU_SOURCE", "-rdynamic", "-I"+built,
		"-I../fakenccl/src", "-I../../runtime/attach", "-o", static, "../fakenccl/programs/traffic.c",
		"../fakenccl/programs/plugin.c", "-L"+nccl, "-l:libnccl.so.2", "-l:libcudart.so.12")
	if text, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for name, c := range map[string]struct {
		files   []string // copies of the plug-in, where the loader looks
		env     []string
		program string
		told    int // how many plug-ins
	}{
		"default":          {[]string{"libnccl-profiler.so"}, nil, dynamic, 1},
		"default, empty":   {[]string{"libnccl-profiler.so"}, []string{"NCCL_PROFILER_PLUGIN="}, dynamic, 1},
		"default, missing": {nil, nil, dynamic, 0},
		"short":            {[]string{"libnccl-profiler-mine.so"}, []string{"NCCL_PROFILER_PLUGIN=mine"}, dynamic, 1},
		"short, with end":  {[]string{"libnccl-profiler-a.so.so"}, []string{"NCCL_PROFILER_PLUGIN=a.so"}, dynamic, 1},
		"file":             {[]string{"libmine.so"}, []string{"NCCL_PROFILER_PLUGIN=libmine.so"}, dynamic, 1},
		"file, missing": {
			[]string{"libnccl-profiler-libmine.so.so"},
			[]string{"NCCL_PROFILER_PLUGIN=libmine.so"},
			dynamic, 0,
		},
		"path":   {[]string{"mine"}, []string{"NCCL_PROFILER_PLUGIN=DIR/mine"}, dynamic, 1},
		"static": {nil, []string{"NCCL_PROFILER_PLUGIN=STATIC_PLUGIN"}, static, 1},
		"none":   {[]string{"libnccl-profiler.so"}, []string{"NCCL_PROFILER_PLUGIN=None"}, dynamic, 0},
		"two": {
			[]string{"libnccl-profiler-mine.so", "libnccl-profiler-b.so"},
			[]string{"NCCL_PROFILER_PLUGIN=mine", "CARILLON_PROFILER_NEXT=b"},
			dynamic, 2,
		},
		"one twice": {
			[]string{"libnccl-profiler-mine.so"},
			[]string{"NCCL_PROFILER_PLUGIN=mine", "CARILLON_PROFILER_NEXT=libnccl-profiler-mine.so"},
			dynamic, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range c.files {
				if err := os.WriteFile(filepath.Join(dir, file), plugin, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			run := func(command ...string) string {
				cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], "processes", "4")...)
				cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+nccl+":"+dir, "NODES=node", "PLUGIN_MASK=0xffff",
					"CARILLON_TAPE_DIR="+dir, "CARILLON_HEALTH_ADDR=off")
				for _, v := range c.env {
					cmd.Env = append(cmd.Env, strings.ReplaceAll(v, "DIR", dir))
				}
				both, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%q: %v\n%s", command, err, both)
				}
				return string(both)
			}
			alone := counts(run(c.program))
			if len(alone) == 0 != (c.told == 0) {
				t.Fatalf("NCCL told the plug-in\n%s", strings.Join(alone, ""))
			}
			want := slices.Repeat(alone, c.told)
			slices.Sort(want)
			printed := run("carillon", "attach", "--", c.program)
			if got := counts(printed); !slices.Equal(got, want) {
				t.Errorf("%d plug-ins were told\n%swant\n%s", c.told, strings.Join(got, ""), strings.Join(want, ""))
			}
			if missing := name == "file, missing"; strings.Contains(printed, "left out") != missing {
				t.Errorf("one is said to be left out: %v; want %v; printed\n%s", !missing, missing, printed)
			}
		})
	}
}

// TestProfilerPluginAndInterposition also preloads the library that is the plug-in: what both see is on the tape only
// once. The plug-in contributes the number of nodes, which NCCL tells only to plug-ins, from 2.27 on.
func TestProfilerPluginAndInterposition(t *testing.T) {
	t.Parallel()
	library := buildLibrary(t)
	for version, nodes := range map[string]int{"2.26.2": 0, "2.27.3": 2, "2.28.9": 2, "2.31.2": 2} {
		t.Run(version, func(t *testing.T) {
			env := []string{"CARILLON_TAPE_DIR=" + t.TempDir(), "CARILLON_JOB=traffic"}
			traffic(t, version, append(env, "LD_PRELOAD="+library, "NCCL_PROFILER_PLUGIN="+library)...)
			operations(t, env, tape.CommInfo{Engine: "nccl " + version, Nodes: nodes})
		})
	}
}

// building is held by the test that runs make in the folder that all tests share.
var building sync.Mutex

// buildLibrary builds the library, and the one for the loader, beside carillon, which finds them there. It returns the
// path of the library.
func buildLibrary(t *testing.T) string {
	t.Helper()
	carillon, err := exec.LookPath("carillon")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Dir(carillon)
	library, audit := filepath.Join(bin, "libcarillon-nccl.so"), filepath.Join(bin, "libcarillon-audit.so")
	building.Lock()
	defer building.Unlock()
	build := exec.CommandContext(t.Context(), "make", "-s", "-C", "../..", "BIN="+bin, library, audit)
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return library
}

// operations checks the tapes of traffic: each rank has made three all-reduces, and the first one has sent to the last,
// on one communicator with that engine and number of nodes.
func operations(t *testing.T, env []string, comm tape.CommInfo) {
	t.Helper()
	dir := strings.TrimPrefix(env[len(env)-2], "CARILLON_TAPE_DIR=")
	var got []string
	ids := map[string]bool{}
	for _, path := range tapesIn(t, filepath.Join(dir, "traffic")) {
		r, err := tape.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for ev, err := range r.Events() {
			if err != nil {
				t.Fatal(err)
			}
			if !ev.IsLife && ev.Op.Stage == tape.StageEnd {
				if ev.Comm.Engine != comm.Engine || ev.Comm.Nodes != comm.Nodes {
					t.Errorf("engine %q on %d nodes; want %q on %d",
						ev.Comm.Engine, ev.Comm.Nodes, comm.Engine, comm.Nodes)
				}
				s := ev.Op.Signature
				got = append(got, fmt.Sprintf("%d: %v %d, %d bytes, peer %d",
					ev.Comm.Rank, s.Call, ev.Op.Seq, s.Bytes, s.Peer))
				ids[ev.Comm.ID.String()] = true
			}
		}
		if alive := r.Slots(); len(alive) != 0 {
			t.Errorf("%s: communicators are alive: %v", path, alive)
		}
		_ = r.Close()
	}
	want := []string{"0: send 1, 4 bytes, peer 3", "3: recv 1, 4 bytes, peer 0"}
	for rank := range 4 {
		for number := range 3 {
			want = append(want, fmt.Sprintf("%d: all_reduce %d, 4 bytes, peer -1", rank, number+1))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(ids) != 1 {
		t.Errorf("on the tapes of %d communicators:\n%s\nwant\n%s",
			len(ids), strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
