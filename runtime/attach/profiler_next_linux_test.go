package attach_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plugin compiles testdata/profiler/recorder.c with those flags, under a name.
func plugin(t testing.TB, dir, name string, flags ...string) string {
	t.Helper()
	path := filepath.Join(dir, name+".so")
	cc(t, path, append(flags, "-shared", "-fvisibility=default", "-DNAME="+name, "testdata/profiler/recorder.c")...)
	return path
}

// told returns what a plug-in of a version records of a capture if NCCL 2.28.9, which uses version 5, reports those
// types of events to it.
func told(calls []call, version int, types uint64) []string {
	numbers := map[string]int{"(nil)": 0, "": 0}
	number := func(name string) int {
		numbers[name] = len(numbers) - 1
		return numbers[name]
	}
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, c := range calls {
		handle, known := numbers[c.H], numbers[c.H] != 0
		switch {
		case c.Prof == "init" && version <= 3:
			say("init %d", number(c.Ctx))
		case c.Prof == "init":
			say("init %d %s - %d %d %d", number(c.Ctx), c.CommID, c.Nodes, c.NRanks, c.Rank)
		case c.Prof == "start" && c.Type&types != 0:
			parent := c.Parent
			if version <= 4 && c.Type&(coll|p2p) != 0 {
				parent = c.ParentGroup
			}
			line := fmt.Sprintf("start %d %d type=%d parent=%d", numbers[c.Ctx], number(c.H), c.Type, numbers[parent])
			if c.Type == coll {
				inside := numbers[c.ParentGroup]
				if version <= 4 {
					inside = 0
				}
				line += fmt.Sprintf(" group=%d %s %d %s", inside, c.Func, c.Count, c.DType)
			}
			say("%s", line)
		case c.Prof == "stop" && known:
			say("stop %d", handle)
		case c.Prof == "state" && known && (version >= 4 || c.State >= 8 && c.State <= 18):
			say("state %d %d", handle, c.State)
		case c.Prof == "finalize":
			say("finalize %d", numbers[c.Ctx])
		}
	}
	return lines
}

// testNext runs other plug-ins beside ours: each records the calls that NCCL would have made to it.
func testNext(t *testing.T, program string) {
	const network = proxyOp | 1<<4
	dir := t.TempDir()
	var paths, env []string // env: where each plug-in records
	type beside struct {
		name          string
		version, mask int
		types         uint64 // the types of events that it gets
	}
	four := []beside{
		{"all", 5, 0xfff, 0xfff},
		{"inspector", 5, coll | kernelCh, groupAPI | collAPI | p2pAPI | group | coll | p2p | kernelCh},
		{"older", 4, coll, group | coll},
		{"oldest", 1, 1 << 4, group | coll | p2p | network},
	}
	for _, p := range four {
		version, mask := fmt.Sprintf("-DVERSION=%d", p.version), fmt.Sprintf("-DMASK=%d", p.mask)
		paths = append(paths, plugin(t, dir, p.name, version, mask))
		env = append(env, "RECORD_"+p.name+"="+filepath.Join(dir, p.name+".txt"))
	}
	calls := capture(t, 2)
	for _, interposed := range []string{"", strings.Repeat("expect -1 -1\n", 3)} {
		script := script(calls, 5, interposed)
		next := "CARILLON_PROFILER_NEXT=" + strings.Join(paths, ",")
		printed, got := drive(t, program, script+"mask\n", append(env, next)...)
		if odd := counts(printed); odd != "" {
			t.Errorf("odd: %s", odd)
		}
		if !strings.Contains(printed, "mask 0xfff\n") {
			t.Errorf("the mask isn't what all asked for:\n%s", printed)
		}
		for _, p := range four {
			text, err := os.ReadFile(filepath.Join(dir, p.name+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			if diff := cmp.Diff(told(calls, p.version, p.types), lines); diff != "" {
				t.Errorf("the plug-in %s was told (-want +got):\n%s", p.name, diff)
			}
		}
		if diff := cmp.Diff(unordered(happened(calls, 5)), unordered(got)); interposed == "" && diff != "" {
			t.Errorf("the tape (-want +got):\n%s", diff)
		}
	}
}

// testNextLeftOut names plug-ins that can't run beside ours: each is reported once, and the others run.
func testNextLeftOut(t *testing.T, program string) {
	dir := t.TempDir()
	good := plugin(t, dir, "good", "-DVERSION=4", "-DMASK=2")
	names := []string{
		filepath.Join(dir, "none.so"), plugin(t, dir, "newer", "-DVERSION=6", "-DMASK=2"), "libc.so.6", "", good,
		plugin(t, dir, "refuses", "-DVERSION=4", "-DMASK=2"), "absent", "STATIC_PLUGIN", "none", "libnccl-profiler.so",
	}
	record := filepath.Join(dir, "good.txt")
	script := "init 1 a 1 2 0 -\ninit 2 b 1 2 0 -\n" +
		"start 1 1 2 0 0 0 AllReduce 1 ncclFloat32 0 0 0 0 0 -\nstop 1\nfinalize 1\nfinalize 2\n"
	next := "CARILLON_PROFILER_NEXT=" + strings.Join(names, ",")
	printed, _ := drive(t, program, script, next, "RECORD_good="+record, "REFUSE_refuses=1")
	for _, want := range []string{
		names[0] + " of CARILLON_PROFILER_NEXT is left out: ",
		names[1] + " of CARILLON_PROFILER_NEXT is left out: this NCCL speaks to plug-ins in a version that is older",
		"libc.so.6 of CARILLON_PROFILER_NEXT is left out: it has none of ncclProfiler_v1 to ncclProfiler_v7",
		"STATIC_PLUGIN of CARILLON_PROFILER_NEXT is left out: it has none of ncclProfiler_v1 to ncclProfiler_v7, " +
			"or is Carillon's own",
		"absent of CARILLON_PROFILER_NEXT is left out: absent: ",
		"; libnccl-profiler-absent.so: ",
	} {
		if strings.Count(printed, want) != 1 {
			t.Errorf("%q isn't said once:\n%s", want, printed)
		}
	}
	if n := strings.Count(printed, "is left out"); n != 5 {
		t.Errorf("%d plug-ins are left out; want 5:\n%s", n, printed)
	}
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	const want = "init 1 a - 1 2 0\ninit 2 b - 1 2 0\n" +
		"start 1 3 type=2 parent=0 group=0 AllReduce 1 ncclFloat32\nstop 3\nfinalize 1\nfinalize 2\n"
	if string(text) != want {
		t.Errorf("the good one was told:\n%swant:\n%s", text, want)
	}
}
