package mesh

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// statOf is what /proc says of process 7, which started at tick 99.
func statOf(state string) string {
	return "7 (a) T (b) " + state + " 1 7 7 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 99 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
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
		{name: "stopped by a signal", stat: statOf("T"), want: Look{Stopped: true, Cause: CauseSignal, Turns: 7}},
		{name: "held by a debugger", stat: statOf("t"), want: Look{Stopped: true, Cause: CauseTraced, Turns: 7}},
		{name: "a zombie", stat: statOf("Z"), gone: true},
		{name: "no process", gone: true},
		{
			name: "frozen, version 2", stat: statOf("S"), cgroup: "0::/job\n",
			freezer: map[string]string{"job/cgroup.events": "populated 1\nfrozen 1\n"},
			want:    Look{Stopped: true, Cause: CauseFrozen, Turns: 7},
		},
		{
			name: "thawed, version 2", stat: statOf("S"), cgroup: "0::/job\n",
			freezer: map[string]string{"job/cgroup.events": "populated 1\nfrozen 0\n"},
		},
		{
			name: "frozen, version 1", stat: statOf("D"), cgroup: "5:freezer:/job\n0::/\n",
			freezer: map[string]string{"freezer/job/freezer.state": "FROZEN\n"},
			want:    Look{Stopped: true, Cause: CauseFrozen, Turns: 7},
		},
	} {
		k := kernel{proc: t.TempDir(), cgroups: t.TempDir()}
		write := func(path, text string) {
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if c.stat != "" {
			write(filepath.Join(k.proc, "7/stat"), c.stat)
			write(filepath.Join(k.proc, "7/status"), status)
			write(filepath.Join(k.proc, "7/cgroup"), c.cgroup)
		}
		for name, text := range c.freezer {
			write(filepath.Join(k.cgroups, name), text)
		}
		got, err := k.Look(7, 99)
		if got != c.want || errors.Is(err, ErrGone) != c.gone || !c.gone && err != nil {
			t.Errorf("%s: %+v, %v; want %+v, gone %v", c.name, got, err, c.want, c.gone)
		}
		if _, err := k.Look(7, 98); !errors.Is(err, ErrGone) {
			t.Errorf("%s: another process of that pid is taken for it: %v", c.name, err)
		}
	}
}

// A child's parent is told how it ended, also if it ended before it was watched.
func TestWatchTellsHowAChildEnded(t *testing.T) {
	for _, c := range []struct {
		script string
		want   Exit
	}{
		{"read x; exit 3", Exit{Known: true, Code: 3}},
		{"read x; exit 0", Exit{Known: true}},
		{"read x; kill -9 $$", Exit{Known: true, Signal: syscall.SIGKILL}},
	} {
		cmd := exec.Command("/bin/sh", "-c", c.script)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := cmd.Process.Pid
		stat, err := readStat("/proc", pid)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan Exit, 1)
		stop, err := Kernel().Watch(pid, stat.start, func(e Exit) { ended <- e })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Fatal(err)
		}
		select {
		case e := <-ended:
			if e != c.want {
				t.Errorf("%q: %v, want %v", c.script, e, c.want)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%q: not told within 10 s", c.script)
		}
		stop()
		_, err = Kernel().Watch(pid, stat.start, func(Exit) { t.Error("told of a process that had ended before") })
		var gone *goneError
		if !errors.As(err, &gone) || gone.exit != c.want {
			t.Errorf("%q, watched afterwards: %v, want %v", c.script, err, c.want)
		}
		_ = cmd.Wait() // it fails as it should
		if _, err := Kernel().Watch(pid, stat.start, func(Exit) {}); !errors.Is(err, ErrGone) {
			t.Errorf("%q, watched when its parent had asked: %v, want %v", c.script, err, ErrGone)
		}
	}
}

func TestStoppedWatchIsNotTold(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "read x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stat, err := readStat("/proc", cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	stop, err := Kernel().Watch(cmd.Process.Pid, stat.start, func(Exit) { t.Error("told after it was stopped") })
	if err != nil {
		t.Fatal(err)
	}
	stop()
	_ = in.Close()
	if err := cmd.Wait(); err == nil {
		t.Error("read x succeeded without input")
	}
}

func TestSelf(t *testing.T) {
	m, err := Self(3, 8)
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != host+"-"+strconv.Itoa(os.Getpid()) || m.Rank != 3 || m.JobSize != 8 || m.BootID == [16]byte{} || m.PIDSpace == 0 {
		t.Errorf("this process is %+v", m)
	}
	if look, err := Kernel().Look(m.PID, m.StartTicks); err != nil || look.Stopped {
		t.Errorf("this process looks like %+v, %v", look, err)
	}
}
