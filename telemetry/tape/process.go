package tape

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process names a process so that no other can be taken for it: pids are reused, and each container counts its own.
type process struct {
	pid   int
	start uint64   // in the kernel's ticks since boot; 0 if unknown
	space uint64   // inode of its pid namespace; 0 if unknown
	boot  [16]byte // the kernel's boot id; zero if unknown
}

// Liveness is what can be known about the process that wrote a tape.
type Liveness uint8

// What can be known.
const (
	Unknown Liveness = iota // it is in another pid namespace, or on another machine
	Alive
	Dead
)

// String is "alive", "dead" or "unknown".
func (l Liveness) String() string {
	switch l {
	case Alive:
		return "alive"
	case Dead:
		return "dead"
	default:
		return "unknown"
	}
}

func self() process {
	p := process{pid: os.Getpid(), space: pidSpace(), boot: kernelBoot()}
	p.start, _ = startTicks(p.pid)
	return p
}

// life looks the process up.
func (p process) life() Liveness {
	var unknown [16]byte
	if boot := kernelBoot(); p.boot != boot || boot == unknown || (p.space != 0 && p.space != pidSpace()) {
		return Unknown
	}
	start, running := startTicks(p.pid)
	if !running || (p.start != 0 && start != p.start) {
		return Dead
	}
	return Alive
}

// startTicks reads when a process started, in ticks since boot. running is false for a process that does not exist or is a zombie.
func startTicks(pid int) (ticks uint64, running bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		// Without /proc all that can be known is whether the pid is taken.
		return 0, !os.IsNotExist(err) || unix.Kill(pid, 0) != unix.ESRCH
	}
	// The second field is the program's name in parentheses and may hold anything, so count from the last parenthesis on.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const state, startTime = 0, 19
	if len(fields) <= startTime {
		return 0, true
	}
	ticks, _ = strconv.ParseUint(string(fields[startTime]), 10, 64)
	switch string(fields[state]) {
	case "Z", "X":
		return ticks, false
	}
	return ticks, true
}

func pidSpace() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) != nil {
		return 0
	}
	return st.Ino
}

// kernelBootID is the kernel's name for this boot of the machine, as text; empty if unknown.
func kernelBootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return cut(strings.TrimSpace(string(id)), bootIDSize-1)
}

// kernelBoot is kernelBootID as its 16 bytes; zero if unknown.
func kernelBoot() (boot [16]byte) {
	digits, err := hex.DecodeString(strings.ReplaceAll(kernelBootID(), "-", ""))
	if err == nil && len(digits) == len(boot) {
		copy(boot[:], digits)
	}
	return boot
}

// deathWatch tells when a process has ended.
type deathWatch struct {
	p    process
	fd   int // a pidfd, or -1: then /proc is asked
	gone bool
}

// watch begins to watch p, whose Life is Alive.
func (p process) watch() *deathWatch {
	w := &deathWatch{p: p, fd: -1}
	if fd, err := unix.PidfdOpen(p.pid, 0); err == nil {
		w.fd = fd
		if p.life() == Dead { // and its pid may have become another's before it was opened
			w.gone = true
		}
	}
	return w
}

// dead asks without blocking.
func (w *deathWatch) dead() bool {
	if w.gone || w.fd < 0 {
		return w.gone || w.p.life() == Dead
	}
	fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

func (w *deathWatch) close() {
	if w.fd >= 0 {
		_ = unix.Close(w.fd) // nothing can be done about it, and nothing is lost
		w.fd = -1
	}
}
