package attach_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// versions are the versions of NCCL's profiler interface.
var versions = []int{1, 2, 3, 4, 5, 6, 7}

// drivers are builds of testdata/profiler/driver.c with the plug-in, by their compiler flags.
var drivers = map[string]string{}

func driver(t testing.TB, flags ...string) string {
	t.Helper()
	path, ok := drivers[strings.Join(flags, " ")]
	if ok {
		return path
	}
	sources, err := filepath.Glob("tape*.c")
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := filepath.Glob("profiler*.c")
	if err != nil {
		t.Fatal(err)
	}
	sources = append(append(sources, plugin...), "ops.c", "testdata/profiler/driver.c")
	path = filepath.Join(filepath.Dir(player), fmt.Sprintf("driver%d", len(drivers)))
	cc(t, path, append(flags, sources...)...)
	drivers[strings.Join(flags, " ")] = path
	return path
}

// cc compiles C to path, with the library's flags and further ones.
func cc(t testing.TB, path string, args ...string) {
	t.Helper()
	flags := []string{
		"-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-O2", "-fPIC",
		"-pthread", "-rdynamic",
	}
	cmd := exec.CommandContext(t.Context(), "cc", append(append(flags, "-o", path), args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

// drive makes the driver run a script, and returns its output and the operations on its tape.
func drive(t testing.TB, program, script string, env ...string) (printed string, operations []string) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), "CARILLON_TAPE_DIR="+dir, "CARILLON_JOB=replay")
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdin = strings.NewReader(script)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("the driver: %v\n%s", err, errs.String())
	}
	if strings.Contains(script, "init ") || strings.HasPrefix(script, "threads ") {
		operations = read(t, dir)
	}
	return out.String() + errs.String(), operations
}

// read returns what the only tape in a folder has about operations, in the order of their ends, and about
// communicators. Operations that have no end are in flight.
func read(t testing.TB, dir string) []string {
	t.Helper()
	r := open(t, dir)
	var operations []string
	for ev, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if ev.IsLife || ev.Op.Stage != tape.StageEnd {
			continue
		}
		if ev.Op.Code != lifecycle.CodeOK || ev.Comm.Engine != "nccl" {
			t.Errorf("an operation of engine %q ended with %v", ev.Comm.Engine, ev.Op.Code)
		}
		operations = append(operations, describe(ev.Comm, ev.Op.Seq, ev.Op.Signature))
	}
	for _, s := range r.Slots() {
		operations = append(operations, fmt.Sprintf("alive: %x rank %d of %d on %d nodes, %d operations, %d in flight",
			hashOf(s.ID), s.Rank, s.Size, s.Nodes, s.Launched, s.Launched-s.Completed))
	}
	return operations
}

// open opens the only tape in a folder, until the test is over.
func open(t testing.TB, dir string) *tape.Reader {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "replay", "*.tape"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("tapes: %v, %v; want one", paths, err)
	}
	r, err := tape.Open(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// parts returns the records about parts of operations on that tape.
func parts(t testing.TB, dir string) (found []tape.OpRecord) {
	t.Helper()
	for ev, err := range open(t, dir).Events() {
		if err != nil {
			t.Fatal(err)
		}
		if !ev.IsLife && ev.Op.IsPart() {
			found = append(found, ev.Op)
		}
	}
	return found
}

// hashOf returns NCCL's number of a communicator, from which the plug-in made the id.
func hashOf(id lifecycle.CommID) uint64 { return binary.LittleEndian.Uint64(id[:8]) }

func describe(comm tape.CommInfo, seq uint64, sig tape.Signature) string {
	return fmt.Sprintf("%x rank %d of %d: %v %d, %v, %d bytes, peer %d", hashOf(comm.ID), comm.Rank, comm.Size,
		sig.Call, seq, kernels.DataType(sig.DataType), sig.Bytes, sig.Peer)
}

// counts returns the counts that a driver printed that aren't 0.
func counts(printed string) string {
	line := regexp.MustCompile(`(?m)^counts (.*)$`).FindStringSubmatch(printed)
	if line == nil {
		return "none"
	}
	var odd []string
	for _, f := range strings.Fields(line[1]) {
		if !strings.HasSuffix(f, "=0") {
			odd = append(odd, f)
		}
	}
	return strings.Join(odd, " ")
}

// TestProfiler calls the plug-in in many ways; its driver is compiled once.
func TestProfiler(t *testing.T) {
	program := driver(t)
	for name, test := range map[string]func(*testing.T, string){
		"replay": testReplay, "interposed": testInterposed, "room": testRoom, "unpaired": testUnpaired,
		"mask": testMask, "next": testNext, "next left out": testNextLeftOut,
		"depth": testDepth,
	} {
		t.Run(name, func(t *testing.T) { test(t, program) })
	}
}

// sanitizers are gcc's, which end a program that accesses invalid memory.
var sanitizers = []string{"-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover"}

// TestOdd calls the plug-in in ways in which no NCCL should, and some versions did.
func TestOdd(t *testing.T) {
	const (
		world    = "init 1 abc 1 4 2 world\n"
		call     = "start 1 %d 512 %d 0 0 AllReduce 10 ncclFloat32 0 0 0 0 0 -\n"
		api      = "start 1 %d 256 0 0 0 - 0 - 0 0 0 0 0 -\n"
		foreign  = "start %d %d 8 %d 0 0 - 0 - 0 0 1 0 0 -\n"
		one, two = "abc rank 2 of 4: all_reduce 1, float32, 40 bytes, peer -1",
			"abc rank 2 of 4: all_reduce 2, float32, 40 bytes, peer -1"
		alive = "alive: abc rank 2 of 4 on 1 nodes, "
	)
	program, f := driver(t, sanitizers...), fmt.Sprintf
	for _, c := range []struct {
		name, script, odd string
		want              []string
	}{
		{
			"a call outside of any group ends with itself",
			world + f(call, 1, 0) + "stop 1\nfinalize 1\n", "",
			[]string{one},
		},
		{
			"a call ends with its group", world + f(api, 1) + f(call, 2, 1) + "stop 2\n", "",
			[]string{alive + "1 operations, 1 in flight"},
		},
		{
			"stopped twice", world + f(call, 1, 0) + "stop 1\nstop 1\nstop 1\nfinalize 1\n", "stopped_twice=2",
			[]string{one},
		},
		{
			"a group stopped twice", world + f(api, 1) + f(call, 2, 1) + "stop 2\nstop 1\nstop 1\nstop 2\nfinalize 1\n",
			"stopped_twice=2",
			[]string{one},
		},
		{"never stopped", world + f(call, 1, 0) + "finalize 1\n", "never_stopped=1", []string{one}},
		{
			"a group never stopped, and another one",
			world + f(api, 1) + f(call, 2, 1) + f(api, 3) + f(call, 4, 3) + "stop 4\nstop 3\n", "",
			[]string{one, two, alive + "2 operations, 0 in flight"},
		},
		{
			"a group stopped before its call began",
			world + f(api, 1) + "stop 1\n" + f(call, 2, 1) + "stop 2\nfinalize 1\n", "",
			[]string{one},
		},
		{
			"stopped before it began", world + "raw 1 dead\nstop 1\n" + f(call, 1, 0) + "stop 1\nfinalize 1\n",
			"unknown_event=1",
			[]string{one},
		},
		{
			"stopped after its communicator", world + f(call, 1, 0) + "finalize 1\nstop 1\n",
			"stopped_twice=1 never_stopped=1",
			[]string{one},
		},
		{
			"a state after the stop", world + f(call, 1, 0) + "stop 1\nstate 1 22 0\nfinalize 1\n", "after_stop=1",
			[]string{one},
		},
		{
			"an event after its communicator", world + "finalize 1\n" + f(call, 1, 0) + "stop 1\n",
			"no_communicator=1", nil,
		},
		{"finalized twice", world + "finalize 1\nfinalize 1\n", "no_communicator=1", nil},
		{
			"no context", "version 5\n" + f(call, 1, 0) + "finalize 1\n" + world + "finalize 1\n",
			"no_communicator=2", nil,
		},
		{
			"an operation of another process (PXN), its context and parent pointers of that one",
			world + "poison context 2\npoison handle 7\n" + f(foreign, 2, 8, 7) + "stop 8\nfinalize 1\n",
			"foreign=1", nil,
		},
		{
			"another process's pointers without its pid",
			world + "poison context 2\npoison handle 7\nstart 2 8 16 7 0 0 - 0 - 0 0 0 0 0 -\n" + f(call, 9, 7) +
				"stop 7\nstate 7 22 0\nstop 9\nfinalize 1\n", "no_communicator=1 unknown_event=2",
			[]string{one},
		},
		{
			"a function that nobody knows",
			world + "start 1 1 512 0 0 0 Fold 1 ncclFloat32 0 0 0 0 0 -\nstop 1\nfinalize 1\n", "", nil,
		},
		{
			"a type of events that nobody knows",
			world + "start 1 1 1048576 0 0 0 - 0 - 0 0 0 0 0 -\nhandle 1\nstop 1\nfinalize 1\n", "", nil,
		},
		{
			"a slot that has another event since",
			world + f(call, 1, 0) + "stop 1\n" + churn(1<<14) + "stop 1\nfinalize 1\n", "late=1",
			[]string{one},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			printed, got := drive(t, program, c.script)
			if strings.Contains(c.name, "another event since") {
				got = got[:1] // also those that took the slots
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("the tape (-want +got):\n%s", diff)
			}
			if got := counts(printed); got != c.odd {
				t.Errorf("odd: %q; want %q", got, c.odd)
			}
			const says = "log 3 1 Carillon's profiler plug-in: 2 stops that came twice\n"
			if c.odd == "stopped_twice=2" && !strings.Contains(printed, says) {
				t.Errorf("NCCL's log has no line on it:\n%s", printed)
			}
		})
	}
}

// churn is n groups of a communicator, each of which begins and ends.
func churn(n int) string {
	return strings.Repeat("start 1 100 256 0 0 0 - 0 - 0 0 0 0 0 -\nstop 100\n", n)
}

// testRoom opens ten thousand events at once, and then more than there is room for; the same with communicators.
func testRoom(t *testing.T, program string) {
	var b strings.Builder
	b.WriteString("init 1 abc 1 4 2 world\n")
	open := func(from, to int) {
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, "start 1 %d 256 0 0 0 - 0 - 0 0 0 0 0 -\n", i)
		}
	}
	closing := func(from, to int) {
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, "stop %d\n", i)
		}
	}
	open(1, 10_001)
	closing(1, 10_001)
	open(1, 20_001)
	b.WriteString("start 1 20001 512 0 0 0 AllReduce 10 ncclFloat32 0 0 0 0 0 -\nhandle 20001\n")
	closing(1, 20_002)
	b.WriteString("start 1 1 512 0 0 0 AllReduce 20 ncclFloat32 0 0 0 0 0 -\nstop 1\n")
	b.WriteString("finalize 1\n")
	printed, got := drive(t, program, b.String())
	if want := fmt.Sprintf("no_room=%d", 20_001-1<<14); counts(printed) != want {
		t.Errorf("odd: %s; want %s", counts(printed), want)
	}
	if !strings.Contains(printed, "handle none\n") {
		t.Error("an event without a slot has a handle")
	}
	want := []string{"abc rank 2 of 4: all_reduce 1, float32, 80 bytes, peer -1"} // the other one had no slot
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the tape (-want +got):\n%s", diff)
	}

	b.Reset()
	for i := range 1025 {
		fmt.Fprintf(&b, "init %d %x 1 4 2 -\n", i, i+1)
	}
	b.WriteString("start 1024 1 512 0 0 0 AllReduce 10 ncclFloat32 0 0 0 0 0 -\nstop 1\n")
	for i := range 1025 {
		fmt.Fprintf(&b, "finalize %d\n", i)
	}
	if printed, _ := drive(t, program, b.String()); counts(printed) != "no_communicator=2 no_room=1" {
		t.Errorf("odd: %s; want the call and the end of a communicator without a slot", counts(printed))
	}
}

// TestThreads makes eight threads make collectives at once, each on a communicator of its own and on a shared one, and
// stop each other's events.
func TestThreads(t *testing.T) {
	const n, m = 8, 500
	printed, got := drive(t, driver(t, "-g", "-fsanitize=thread", "-Wno-tsan"), fmt.Sprintf("threads %d %d\n", n, m))
	numbers := map[string]int{}
	for _, o := range got {
		comm, _, _ := strings.Cut(o, " ")
		numbers[comm]++
		if want := fmt.Sprintf("all_reduce %d, ", numbers[comm]); !strings.Contains(o, want) {
			t.Fatalf("%s; want %s", o, want)
		}
	}
	for comm, operations := range numbers {
		if want := map[bool]int{false: m, true: n * m}[comm == "100000000"]; operations != want {
			t.Errorf("communicator %s: %d operations; want %d", comm, operations, want)
		}
	}
	if len(numbers) != n+1 || !strings.Contains(printed, " not_written=0 ") {
		t.Errorf("%d communicators; odd: %s", len(numbers), counts(printed))
	}
}

// testUnpaired never stops events below tasks, as NCCL forgets some of these stops: the events' slots are reused.
func testUnpaired(t *testing.T, program string) {
	dir := t.TempDir()
	beside := plugin(t, dir, "all", "-DVERSION=5", "-DMASK=0xfff")
	var b strings.Builder
	b.WriteString("expect 2 4\ninit 1 abc 1 4 2 world\nstart 1 1 8 0 0 0 - 0 - 0 0 0 0 0 -\n")
	const n = 6 << 14
	for range n {
		b.WriteString("start 1 2 16 1 0 0 - 0 - 0 0 0 0 0 -\n")
	}
	b.WriteString("finalize 1\n")
	printed, _ := drive(t, program, b.String(), "CARILLON_PROFILER_NEXT="+beside, "RECORD_all=/dev/null")
	var never, exhausted int
	if _, err := fmt.Sscanf(counts(printed), "never_stopped=%d no_room=%d", &never, &exhausted); err != nil {
		t.Fatalf("odd: %s: %v", counts(printed), err)
	}
	if never+exhausted != n+1 || exhausted > n/10 {
		t.Errorf("of %d events %d were never stopped, and %d found no room", n+1, never, exhausted)
	}
}

// testMask makes and ends communicators, while somebody else writes the mask, too.
func testMask(t *testing.T, program string) {
	for _, c := range []struct{ name, script, want string }{
		{"interposed, version 1", "version 1\nexpect -1 -1\ninit 1 a 1 2 0 -\nmask\n", "0x0"},
		{"interposed", "expect 0 2\ninit 1 a 1 2 0 -\nmask\n", "0x0"},
		{"not interposed, version 3", "version 3\ninit 1 a 1 2 0 -\nmask\n", "0x5e"},
		{"not interposed", "init 1 a 1 2 0 -\nmask\n", "0x75e"},
		{
			"not interposed, and a group was looked into",
			"init 1 a 1 2 0 -\nstart 1 1 256 0 0 0 - 0 - 0 0 0 0 0 -\n" +
				"start 1 2 512 1 0 0 AllReduce 10 ncclFloat32 0 0 0 0 0 -\nstop 2\nmask\nstop 1\nmask\n",
			"0x75e 0x706",
		},
		{
			"not interposed, version 4, and an operation was looked into",
			"version 4\ninit 1 a 1 2 0 -\nstart 1 1 2 0 0 0 AllReduce 10 ncclFloat32 0 0 0 0 0 -\nstop 1\nmask\n" +
				"start 1 1 2 0 0 0 AllReduce 10 ncclFloat32 0 0 0 0 0 -\nmask\n",
			"0x5e 0x6",
		},
		{
			"one of two interposed", "expect 0 2\ninit 1 a 1 2 0 -\nmask\ninit 2 b 1 2 0 -\nmask\nfinalize 2\nmask\n",
			"0x0 0x75e 0x0",
		},
		{
			"another writer's bits stay",
			"expect 0 2\ninit 1 a 1 2 0 -\nsetmask 0xfff\ninit 2 b 1 2 0 -\nmask\nfinalize 2\nmask\n",
			"0xfff 0x8a1",
		},
		{
			"another writer turned it off",
			"init 1 a 1 2 0 -\nsetmask 0\ninit 2 b 1 2 0 -\nmask\nfinalize 2\nmask\n",
			"0x0 0x0",
		},
		{
			"all communicators have ended",
			"init 1 a 1 2 0 -\nfinalize 1\nsetmask 0\ninit 1 a 1 2 0 -\nmask\n",
			"0x75e",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			printed, _ := drive(t, program, c.script)
			var got []string
			for _, m := range regexp.MustCompile(`(?m)^mask (.*)$`).FindAllStringSubmatch(printed, -1) {
				got = append(got, m[1])
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("masks %v; want %s", got, c.want)
			}
			if strings.HasPrefix(c.name, "another writer") != (counts(printed) != "") {
				t.Errorf("odd: %s", counts(printed))
			}
		})
	}
}

// testDepth looks into the first all-reduce of a replayed rank on the communicator between two nodes: the data of its
// proxies, and the time of its kernel.
func testDepth(t *testing.T, program string) {
	calls := capture(t, 0)
	var ctx, of string
	var sent, first, last uint64
	sends, kernels := map[string]bool{}, map[string]bool{}
	for _, c := range calls {
		switch {
		case c.Prof == "init" && c.NRanks == 2 && c.Nodes == 2 && ctx == "":
			ctx = c.Ctx
		case c.Prof == "start" && c.Ctx == ctx && c.Type == coll && of == "":
			of = c.H
		case c.Prof == "start" && c.Type == proxyOp && c.Parent == of:
			sends[c.H] = c.Send == 1
		case c.Prof == "start" && c.Type == kernelCh && c.Parent == of:
			kernels[c.H] = true
			if first == 0 || c.PTimer < first {
				first = c.PTimer
			}
		case c.Prof == "start" && sends[c.Parent]:
			sends[c.H] = true
		case c.Prof == "state" && c.State == 9 && sends[c.H]:
			sent += c.Arg
		case c.Prof == "state" && kernels[c.H]:
			last = max(last, c.Arg)
		}
	}
	var b strings.Builder
	context, task := "", ""
	for line := range strings.Lines(script(calls, 5, "expect -1 -1\nexpect -1 -1\nexpect -1 -1\n")) {
		f := strings.Fields(line)
		b.WriteString(line)
		switch {
		case f[0] == "init" && f[3] == "2" && f[4] == "2" && context == "":
			context = f[1]
			fmt.Fprintf(&b, "look %s 7\n", context)
		case f[0] == "start" && f[1] == context && f[3] == fmt.Sprint(coll) && task == "":
			task = f[2]
		case f[0] == "stop" && f[1] == task && task != "":
			fmt.Fprintf(&b, "launched %s\n", context)
		}
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), "CARILLON_TAPE_DIR="+dir, "CARILLON_JOB=replay")
	cmd.Stdin = strings.NewReader(b.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got []string
	for _, o := range parts(t, dir) {
		if o.Start <= 0 || o.Time <= o.Start {
			t.Errorf("a part is from %d to %d", o.Start, o.Time)
		}
		if s := o.Proxied(); o.IsProxied() {
			got = append(got, fmt.Sprintf("%d: %d bytes to %d", o.Seq, s.Bytes, s.Peer))
		} else {
			got = append(got, fmt.Sprintf("%d: a kernel of %d ns", o.Seq, o.Time-o.Start))
		}
	}
	want := []string{fmt.Sprintf("7: %d bytes to 1", sent), fmt.Sprintf("7: a kernel of %d ns", last-first)}
	if diff := cmp.Diff(want, got); diff != "" || sent == 0 || last == first {
		t.Errorf("the tape (-want +got):\n%s", diff)
	}
}

// FuzzCallbacks calls the plug-in in any order, with handles of any event, including stopped and foreign ones.
func FuzzCallbacks(f *testing.F) {
	program := driver(f, sanitizers...)
	beside := plugin(f, f.TempDir(), "fuzzed", "-DVERSION=4", "-DMASK=0x5f")
	f.Add([]byte{5, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte("\x04\x00\x01\x11\x02\x23\x03\x33\x04\x05\x16\x27\x38"))
	f.Fuzz(func(t *testing.T, bytes []byte) {
		if len(bytes) == 0 || len(bytes) > 4096 {
			return
		}
		var b strings.Builder
		fmt.Fprintf(&b, "version %d\npoison handle 15\npoison context 7\n", bytes[0]%7+1)
		types := []uint64{
			group, coll, p2p, proxyOp, 1 << 4, 1 << 5, kernelCh, 1 << 7, groupAPI, collAPI, p2pAPI, 1 << 11, 1 << 20,
		}
		functions := []string{"AllReduce", "AllGather", "Send", "Recv", "Broadcast", "-", "Nothing"}
		for i, x := range bytes[1:] {
			n := int(x >> 4)
			switch m := i * 7 % 16; x % 16 {
			case 0, 1:
				fmt.Fprintf(&b, "init %d %x %d %d %d -\n", n%7, n, m%3, m+1, n%(m+1))
			case 2:
				fmt.Fprintf(&b, "finalize %d\n", n%8)
			case 3, 4, 5:
				fmt.Fprintf(&b, "stop %d\n", n)
			case 6:
				fmt.Fprintf(&b, "state %d %d %d\n", n, m+8, i)
			case 7:
				fmt.Fprintf(&b, "setmask %d\n%s %d 1\n", i, []string{"look", "launched", "seen"}[n%3], m%8)
			case 8:
				fmt.Fprintf(&b, "raw %d %x\nexpect -1 -1\n", n%15, uint64(i)<<uint(m*4))
			default:
				fmt.Fprintf(&b, "start %d %d %d %d %d %d %s %d ncclFloat16 %d %d %d %d %x -\n", m%8, 1+n%14,
					types[(i+n)%len(types)], (i+m)%16, m, n, functions[(i*3+n)%len(functions)], i, m%3, n-1, m&1, i, n)
			}
		}
		for i := range 8 {
			fmt.Fprintf(&b, "finalize %d\n", i)
		}
		_, operations := drive(t, program, b.String(), "CARILLON_PROFILER_NEXT="+beside, "RECORD_fuzzed=/dev/null",
			"ASAN_OPTIONS=detect_leaks=0") // the recorder never frees its events
		for _, o := range operations {
			if strings.Contains(o, ", 1 in flight") {
				t.Errorf("left behind: %s", o)
			}
		}
	})
}

// BenchmarkCollective measures what the callbacks of one collective cost NCCL's caller in steady state.
func BenchmarkCollective(b *testing.B) {
	program := driver(b)
	for _, c := range []struct{ name, before string }{{"interposed", "expect 0 8\n"}, {"alone", ""}} {
		b.Run(c.name, func(b *testing.B) {
			printed, _ := drive(b, program, fmt.Sprintf("%sbench %d\n", c.before, max(b.N/1000, 1)))
			var took float64
			var callbacks int
			const format = "bench %f ns a collective, of %d callbacks"
			if _, err := fmt.Sscanf(printed, format, &took, &callbacks); err != nil {
				b.Fatalf("%v: %s", err, printed)
			}
			b.ReportMetric(took, "ns/op")
			b.ReportMetric(took/float64(callbacks), "ns/callback")
		})
	}
}
