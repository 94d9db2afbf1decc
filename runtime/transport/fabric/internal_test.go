package fabric

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport/shm"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// WithInboxFD returns a card with the inbox at another file descriptor.
func WithInboxFD(t *testing.T, encoded []byte, fd int) []byte {
	t.Helper()
	c, err := decodeCard(encoded)
	if err != nil {
		t.Fatal(err)
	}
	c.inbox.FD = fd
	return c.encode()
}

func aCard() *card {
	return &card{
		comm: lifecycle.CommID{1}, fabric: [16]byte{2}, hostID: "boot", host: "node7",
		process: process.ID{PID: 4711, StartTicks: 1 << 40, PIDSpace: 4026531836, BootID: process.BootID{5}},
		inbox:   shm.Location{FD: 12, Slots: 8, Token: [16]byte{3}}, tcp: "[2001:db8::1]:49152", gate: door.Room{4},
	}
}

func TestCardThereAndBack(t *testing.T) {
	for _, want := range []*card{{}, aCard()} {
		b := want.encode()
		if len(b) > 300 {
			t.Errorf("a card has %d bytes", len(b))
		}
		got, err := decodeCard(b)
		if err != nil || *got != *want {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
		for n := range b {
			if _, err := decodeCard(b[:n]); err == nil {
				t.Errorf("the first %d of %d bytes pass for a card", n, len(b))
			}
		}
	}
}

func FuzzDecodeCard(f *testing.F) {
	f.Add(aCard().encode())
	f.Add([]byte{cardVersion})
	f.Add(append(aCard().encode(), 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeCard(b)
		if err != nil {
			return
		}
		again, err := decodeCard(c.encode())
		if err != nil || *again != *c {
			t.Errorf("%+v became %+v, %v", c, again, err)
		}
	})
}

func TestIfname(t *testing.T) {
	for _, c := range []struct {
		pattern string
		admits  []string
	}{
		{"", []string{"eth0", "eth1", "ib0", "docker0", "lo"}},
		{"eth,ib0", []string{"eth0", "eth1", "ib0"}},
		{"=eth1, lo", []string{"eth1", "lo"}},
		{"=eth", nil},
		{"^docker,lo", []string{"eth0", "eth1", "ib0"}},
		{"^=eth0", []string{"eth1", "ib0", "docker0", "lo"}},
	} {
		f, err := parseIfname(c.pattern)
		if err != nil {
			t.Errorf("%q: %v", c.pattern, err)
		}
		var admitted []string
		for _, name := range []string{"eth0", "eth1", "ib0", "docker0", "lo"} {
			if f.admits(name) {
				admitted = append(admitted, name)
			}
		}
		if diff := cmp.Diff(c.admits, admitted); diff != "" {
			t.Errorf("%q: (-want +got)\n%s", c.pattern, diff)
		}
	}
}

// sleeper starts a process that does nothing until it is killed.
func sleeper(t *testing.T) (*exec.Cmd, process.ID) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says that it was killed
	})
	id := process.Self()
	id.PID, id.StartTicks = cmd.Process.Pid, 0
	return cmd, id
}

func TestDeaths(t *testing.T) {
	d := newDeaths()
	defer d.close()
	cmd, p := sleeper(t)
	_, other := sleeper(t)
	told := make(chan string, 4)
	watch := func(p process.ID, name string) func() {
		cancel, err := d.watch(p, func() { told <- name })
		if err != nil {
			t.Fatal(err)
		}
		return cancel
	}
	watch(p, "first")
	cancel := watch(p, "second")
	watch(p, "third")
	watch(other, "other")
	cancel()
	cancel() // once is enough

	begun := time.Now()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{<-told: true, <-told: true}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("it took %v", took)
	}
	if diff := cmp.Diff(map[string]bool{"first": true, "third": true}, names); diff != "" {
		t.Errorf("told: (-want +got)\n%s", diff)
	}
	if len(d.watched) != 1 {
		t.Errorf("%d processes are still watched, want 1", len(d.watched))
	}
	_ = cmd.Wait() // until then the process is a zombie, whose death is told at once
	if _, err := d.watch(p, func() {}); !errors.Is(err, process.ErrGone) {
		t.Errorf("watching a dead process: %v", err)
	}
}

// A pid that was reused names another process.
func TestDeathsKnowsProcessesApart(t *testing.T) {
	d := newDeaths()
	defer d.close()
	_, p := sleeper(t)
	p.StartTicks--
	if _, err := d.watch(p, func() {}); !errors.Is(err, process.ErrGone) {
		t.Errorf("got %v", err)
	}
	if _, err := d.watch(process.ID{PID: 1 << 30}, func() {}); !errors.Is(err, process.ErrGone) {
		t.Errorf("a pid that can't be: %v", err)
	}
}
