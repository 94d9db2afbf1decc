package chaos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// network is two hosts connected by a switch, which the test is connected to as well.
type network struct {
	t      *testing.T
	number int
	hosts  [2]*host
	jobs   int // how many jobs were started here
}

// host is a network and a UTS namespace, with a folder.
type host struct {
	name, addr string
	port       string // on the switch: the other end of the host's cable
	holder     *exec.Cmd
	tapes      string
}

var networks atomic.Int32

// newNetwork makes a network that exists until the test ends.
func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{t: t, number: int(networks.Add(1))}
	n.ip("link", "set", "lo", "up")
	n.ip("link", "add", n.bridge(), "type", "bridge")
	n.ip("address", "add", n.addr(254)+"/24", "dev", n.bridge())
	n.ip("link", "set", n.bridge(), "up")
	for i, letter := range []string{"a", "b"} {
		h := &host{
			name: fmt.Sprintf("host%d%s", n.number, letter), addr: n.addr(i + 1), port: fmt.Sprintf("port%d%s",
				n.number, letter),
			tapes: filepath.Join(t.TempDir(), letter),
		}
		n.hosts[i] = h
		if err := os.Mkdir(h.tapes, 0o700); err != nil {
			t.Fatal(err)
		}
		h.hold(t)
		n.ip("link", "add", h.port, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(h.holder.Process.Pid))
		n.ip("link", "set", h.port, "master", n.bridge(), "up")
		h.command(t, "ip", "link", "set", "lo", "up")
		h.command(t, "ip", "address", "add", h.addr+"/24", "dev", "eth0")
		h.command(t, "ip", "link", "set", "eth0", "up")
	}
	t.Cleanup(func() { n.ip("link", "delete", n.bridge()) })
	return n
}

func (n *network) bridge() string             { return fmt.Sprintf("switch%d", n.number) }
func (n *network) addr(i int) string          { return fmt.Sprintf("10.213.%d.%d", n.number, i) }
func (n *network) ip(args ...string)          { command(n.t, "ip", args...) }
func (n *network) cut(h *host)                { n.ip("link", "set", h.port, "down") }
func (n *network) mend(h *host)               { n.ip("link", "set", h.port, "up") }
func (n *network) contact(port string) string { return fmt.Sprintf("http://%s:%s", n.addr(254), port) }

// lose makes both hosts lose a share of incoming packets, in percent.
func (n *network) lose(percent int) {
	for _, h := range n.hosts {
		h.command(n.t, "nft", fmt.Sprintf(
			`add table ip loss; add chain ip loss in { type filter hook input priority 0; };
			add rule ip loss in iifname "eth0" numgen random mod 100 < %d counter drop`, percent))
	}
}

// awaitLost waits until each host has lost so many packets.
func (n *network) awaitLost(enough int) {
	n.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		lost := n.lost()
		if lost[0] >= enough && lost[1] >= enough {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			n.t.Fatalf("within %v the hosts lost %v packets, want %d each", patience, lost, enough)
		}
	}
}

// lost is how many packets each host has lost.
func (n *network) lost() (lost [2]int) {
	n.t.Helper()
	for i, h := range n.hosts {
		_, count, ok := strings.Cut(h.command(n.t, "nft", "list", "table", "ip", "loss"), "counter packets ")
		if !ok {
			n.t.Fatalf("%s counts no lost packets", h.name)
		}
		if _, err := fmt.Sscan(count, &lost[i]); err != nil {
			n.t.Fatal(err)
		}
	}
	return lost
}

// loseNothing ends the loss.
func (n *network) loseNothing() {
	for _, h := range n.hosts {
		h.command(n.t, "nft", "delete", "table", "ip", "loss")
	}
}

// hold starts the process that keeps the namespaces alive, and waits until they have their name.
func (h *host) hold(t *testing.T) {
	t.Helper()
	h.holder = exec.Command("sh", "-c", `echo "$0" >/proc/sys/kernel/hostname && echo named && exec sleep infinity`,
		h.name)
	h.holder.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS, Pdeathsig: syscall.SIGKILL,
	}
	out, err := h.holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.holder.Process.Kill()
		_ = h.holder.Wait() // it was killed
	})
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatalf("%s has not got its name: %v", h.name, err)
	}
}

// enter returns a command that runs args on the host.
func (h *host) enter(args ...string) []string {
	pid := fmt.Sprint(h.holder.Process.Pid)
	return append([]string{"nsenter", "--net=/proc/" + pid + "/ns/net", "--uts=/proc/" + pid + "/ns/uts", "--"},
		args...)
}

func (h *host) command(t *testing.T, args ...string) string {
	t.Helper()
	args = h.enter(args...)
	return command(t, args[0], args[1:]...)
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
