package process

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle/wire"
)

// nobody is a pid that no process has: it is above the kernel's limit.
const nobody = 1 << 30

// statOf is the stat in /proc of a process that started at tick 99.
func statOf(state string) string {
	return "7 (a) T (b) " + state + " 1 7 7 0 -1 4 0 0 0 0 1 2 0 0 20 0 1 0 99 0 0" + strings.Repeat(" 0", 29) + "\n"
}

// machine is a kernel that shows the files that a test writes.
func machine(t *testing.T) kernel { return kernel{t.TempDir(), t.TempDir(), unix.PidfdOpen} }

func write(t *testing.T, text string, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func TestLook(t *testing.T) {
	const status = "Name:\ta\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t4\n"
	for _, c := range []struct {
		name    string
		stat    string
		cgroup  string
		freezer map[string]string
		want    Look
		gone    bool
	}{
		{name: "runs", stat: statOf("R"), cgroup: "0::/job\n"},
		{name: "sleeps", stat: statOf("S")},
		{name: "waits for a disk", stat: statOf("D")},
		{name: "stopped by a signal", stat: statOf("T"), want: Look{Stopped, 7}},
		{name: "held by a debugger", stat: statOf("t"), want: Look{Traced, 7}},
		{name: "a zombie", stat: statOf("Z"), gone: true},
		{name: "no process", gone: true},
		{
			name: "frozen, version 2", stat: statOf("S"), cgroup: "0::/job\n",
			freezer: map[string]string{"job/cgroup.events": "populated 1\nfrozen 1\n"}, want: Look{Frozen, 7},
		},
		{
			name: "thawed, version 2", stat: statOf("S"), cgroup: "0::/job\n",
			freezer: map[string]string{"job/cgroup.events": "populated 1\nfrozen 0\n"},
		},
		{
			name: "frozen, version 1", stat: statOf("D"), cgroup: "5:freezer:/job\n0::/\n",
			freezer: map[string]string{"freezer/job/freezer.state": "FROZEN\n"}, want: Look{Frozen, 7},
		},
	} {
		k := machine(t)
		if c.stat != "" {
			write(t, c.stat, k.proc, "1073741824/stat")
			write(t, status, k.proc, "1073741824/status")
			write(t, c.cgroup, k.proc, "1073741824/cgroup")
		}
		for name, text := range c.freezer {
			write(t, text, k.cgroups, name)
		}
		got, err := k.look(ID{PID: nobody, StartTicks: 99})
		if got != c.want || errors.Is(err, ErrGone) != c.gone || !c.gone && err != nil {
			t.Errorf("%s: %+v, %v; want %+v, gone %v", c.name, got, err, c.want, c.gone)
		}
		if _, err := k.look(ID{PID: nobody, StartTicks: 98}); !errors.Is(err, ErrGone) {
			t.Errorf("%s: another process of that pid is taken for it: %v", c.name, err)
		}
	}
}

func TestParseStatRefusesNonsense(t *testing.T) {
	for _, text := range []string{"", "7 (a)", "7 (a) S 1", strings.Replace(statOf("S"), "99", "x", 1), statOf("SS")} {
		if s, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q gives %+v", text, s)
		}
	}
	if s, err := parseStat([]byte(statOf("S"))); err != nil || s.start != 99 || s.flags != 4 || s.state != 'S' {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestSelf(t *testing.T) {
	me := Self()
	if me.PID != os.Getpid() || me.StartTicks == 0 || me.PIDSpace == 0 || me.BootID == (BootID{}) {
		t.Errorf("this process is %+v", me)
	}
	kernels, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || me.BootID.String() != strings.TrimSpace(string(kernels)) {
		t.Errorf("the boot id is %v, the kernel's %s, %v", me.BootID, kernels, err)
	}
	if look, err := me.Look(); err != nil || look.State != Runs {
		t.Errorf("this process looks like %+v, %v", look, err)
	}
	if of, err := idOf(me.PID); of != me || err != nil {
		t.Errorf("by its pid, this process is %+v, %v", of, err)
	}
	if _, err := idOf(nobody); !errors.Is(err, ErrGone) {
		t.Errorf("nobody's pid is that of a process: %v", err)
	}
	if !Running(me.PID) || Exiting(me.PID) || Running(nobody) || Exiting(nobody) {
		t.Error("this process does not run, or nobody does")
	}
	r := wire.NewReader(me.Append(nil))
	if got := Read(r); got != me || r.End() != nil {
		t.Errorf("sent and read again, this process is %+v, %v", got, r.End())
	}
}

func TestLiveness(t *testing.T) {
	me := Self()
	other, earlier, elsewhere, boundless := me, me, me, me
	earlier.StartTicks++ // another process with our pid
	other.BootID[0]++
	elsewhere.PIDSpace++
	boundless.PIDSpace = 0
	all := map[Liveness][]ID{
		Alive: {me, boundless}, Dead: {earlier, {PID: nobody, BootID: me.BootID}}, Unknown: {other, {PID: me.PID}},
	}
	unseen := Unknown // it may run in a namespace beside this one
	if me.PIDSpace == firstSpace {
		unseen = Dead
	}
	all[unseen] = append(all[unseen], elsewhere)
	for want, ids := range all {
		for _, id := range ids {
			if got := id.Liveness(); got != want {
				t.Errorf("%+v is %v, want %v", id, got, want)
			}
		}
	}
	if (BootID{}).String() != "" || Alive.String() != "alive" || Dead.String() != "dead" ||
		Unknown.String() != "unknown" {
		t.Error("names differ")
	}
}

// child starts a shell that waits for a line before it runs the rest of script.
func child(t *testing.T, script string) (cmd *exec.Cmd, id ID, proceed func()) {
	t.Helper()
	cmd = exec.Command("/bin/sh", "-c", "read x; "+script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err = idOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, id, func() {
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Error(err)
		}
	}
}

// kernels are this one, and the same without pidfds.
func kernels() map[string]kernel {
	without := this
	without.pidfd = func(int, int) (int, error) { return -1, unix.ENOSYS }
	return map[string]kernel{"pidfd": this, "proc": without}
}

// The parent of a process is told how the process ended, even if it ended before it was watched. Without pidfds only
// processes that may trace it are told.
func TestWatchTellsHowAChildEnded(t *testing.T) {
	for name, k := range kernels() {
		for _, c := range []struct {
			script string
			want   Exit
		}{
			{"exit 3", Exit{Known: true, Code: 3}},
			{"exit 0", Exit{Known: true}},
			{"kill -9 $$", Exit{Known: true, Signal: syscall.SIGKILL}},
		} {
			agree := func(e Exit) bool { return e == c.want || name == "proc" && !e.Known }
			cmd, id, proceed := child(t, c.script)
			ended := make(chan Exit, 1)
			stop, err := k.watch(id, func(e Exit) { ended <- e })
			if err != nil {
				t.Fatal(err)
			}
			proceed()
			select {
			case e := <-ended:
				if !agree(e) {
					t.Errorf("%s, %q: %v, want %v", name, c.script, e, c.want)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("%s, %q: not told within 10 s", name, c.script)
			}
			stop()
			stop()
			_, err = k.watch(id, func(Exit) { t.Error("told of a process that had ended before") })
			if !errors.Is(err, ErrGone) || !agree(ExitOf(err)) {
				t.Errorf("%s, %q, watched afterwards: %v, want %v", name, c.script, err, c.want)
			}
			_ = cmd.Wait() // it fails as it should
			if _, err := k.watch(id, func(Exit) {}); !errors.Is(err, ErrGone) {
				t.Errorf("%s, %q, watched when its parent had asked: %v, want %v", name, c.script, err, ErrGone)
			}
		}
	}
}

func TestStoppedWatchIsNotTold(t *testing.T) {
	for name, k := range kernels() {
		cmd, id, proceed := child(t, "exit 0")
		stop, err := k.watch(id, func(Exit) { t.Errorf("%s: told after it was stopped", name) })
		if err != nil {
			t.Fatal(err)
		}
		stop()
		proceed()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// An end that happened before a watch is stopped is still reported.
func TestStoppedWatchHasTold(t *testing.T) {
	for name, k := range kernels() {
		cmd, id, proceed := child(t, "exit 3")
		told := 0
		stop, err := k.watch(id, func(Exit) { told++ })
		if err != nil {
			t.Fatal(err)
		}
		proceed()
		for !k.ended(id) {
			runtime.Gosched()
		}
		stop()
		if told != 1 {
			t.Errorf("%s: told %d times", name, told)
		}
		_ = cmd.Wait() // it fails as it should
	}
}

func TestExit(t *testing.T) {
	for want, e := range map[string]Exit{
		"not known how": {}, "exit status 3": {Known: true, Code: 3}, "killed": {Known: true, Signal: syscall.SIGKILL},
	} {
		if e.String() != want || e.Failed() != (e != Exit{}) {
			t.Errorf("%+v is %q, failed %v", e, e, e.Failed())
		}
	}
	if (Exit{Signal: syscall.SIGTERM}).ShellCode() != 143 || (Exit{Code: 5}).ShellCode() != 5 {
		t.Error("a shell says otherwise")
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte(statOf("T")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseStat(b); err == nil && s.state == 0 {
			t.Errorf("%q was read as %+v", b, s)
		}
	})
}

// idOf is the process that has a pid now.
func idOf(pid int) (ID, error) {
	id := Self()
	s, err := this.of(ID{PID: pid})
	id.PID, id.StartTicks = pid, s.start
	return id, err
}

// TestHere: a process of a lower pid namespace gets its pid in this namespace, and no other process is taken for it.
func TestHere(t *testing.T) {
	k := machine(t)
	put := func(pid, numbers, space string) {
		t.Helper()
		write(t, statOf("S"), k.proc, pid, "stat")
		write(t, "Name:\ta\nNSpid:\t"+numbers+"\n", k.proc, pid, "status")
		write(t, "", k.proc, pid, "ns", "mnt")
		if err := os.Symlink("pid:["+space+"]", filepath.Join(k.proc, pid, "ns", "pid")); err != nil {
			t.Fatal(err)
		}
	}
	put("70", "70\t7", "5") // of another container
	put("71", "71\t8", "4")
	put("72", "72\t3\t7", "4")
	write(t, "Name:\ta\nNSpid:\t73\t8\n", k.proc, "73", "status") // of another user
	write(t, statOf("S"), k.proc, "73", "stat")
	for _, c := range []struct {
		id   ID
		want int
		all  bool
	}{
		{ID{PID: 7, PIDSpace: 4, StartTicks: 99}, 72, true},
		{ID{PID: 7, PIDSpace: 4, StartTicks: 98}, 0, true}, // an earlier process with that pid
		{ID{PID: 7, PIDSpace: 6, StartTicks: 99}, 0, true},
		{ID{PID: 8, PIDSpace: 4, StartTicks: 99}, 71, true},
		{ID{PID: 8, PIDSpace: 6, StartTicks: 99}, 0, false},
		{ID{PID: 9, PIDSpace: 4, StartTicks: 99}, 0, true},
	} {
		if got, all := k.find(c.id); got != c.want || all != c.all {
			t.Errorf("%+v is process %d, %v, want %d, %v", c.id, got, all, c.want, c.all)
		}
	}
	other := Self()
	other.BootID[0]++
	other.PIDSpace++
	if here := other.Here(); here != other {
		t.Errorf("a process of another machine is taken for %+v", here)
	}
}

// TestPlace returns where a process is, as far as the kernel shows it.
func TestPlace(t *testing.T) {
	k := machine(t)
	write(t, statOf("D"), k.proc, "7", "stat")
	write(t, "folio_wait_bit", k.proc, "7", "wchan")
	write(t, "[<0>] folio_wait_bit+0x13c/0x2c0\n[<0>] do_sys_read+0x5\n", k.proc, "7", "stack")
	write(t, statOf("R"), k.proc, "8", "stat")
	write(t, "0", k.proc, "8", "wchan")
	for _, c := range []struct {
		id   ID
		want Place
		gone bool
	}{
		{ID{PID: 7, StartTicks: 99}, Place{'D', "folio_wait_bit", []string{"folio_wait_bit", "do_sys_read"}}, false},
		{ID{PID: 8}, Place{State: 'R'}, false},
		{ID{PID: 7, StartTicks: 98}, Place{}, true}, // another process had that pid
	} {
		got, err := k.place(c.id)
		if !reflect.DeepEqual(got, c.want) || errors.Is(err, ErrGone) != c.gone {
			t.Errorf("%+v is at %+v, %v; want %+v", c.id, got, err, c.want)
		}
	}
}

// TestRunDelay: threads that want more than one processor, and have one, wait for it.
func TestRunDelay(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	one := -1
	for i := 0; one < 0; i++ {
		if all.IsSet(i) {
			one = i
		}
	}
	const threads, busyTime = 3, 50 * time.Millisecond
	before := RunDelay()
	var busy sync.WaitGroup
	for range threads {
		busy.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var here unix.CPUSet
			here.Set(one)
			if err := unix.SchedSetaffinity(0, &here); err != nil {
				t.Error(err)
			}
			spins := 0
			for began := time.Now(); time.Since(began) < busyTime; spins++ {
			}
			if err := unix.SchedSetaffinity(0, &all); err != nil {
				t.Error(err)
			}
			if RunDelay() == before {
				t.Error("no thread has waited")
			}
		})
	}
	busy.Wait()
}
