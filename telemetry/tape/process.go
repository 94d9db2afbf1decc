package tape

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

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

// deathWatch tells when a process has ended. Its goroutine sleeps in the runtime's poller and costs nothing.
type deathWatch struct {
	p     process
	pidfd *os.File // nil if there is none: then /proc is asked
	died  atomic.Bool
	done  chan struct{} // closed when the goroutine has ended
}

// watch begins to watch p, whose Liveness is known. onDeath is called once when it ends, from another goroutine.
func (p process) watch(onDeath func()) *deathWatch {
	w := &deathWatch{p: p, done: make(chan struct{})}
	fd, err := unix.PidfdOpen(p.pid, unix.PIDFD_NONBLOCK)
	if err == nil {
		w.pidfd = os.NewFile(uintptr(fd), "pidfd")
	}
	if p.life() == Dead { // also if its pid became another's before it was opened
		w.died.Store(true)
	}
	if w.pidfd == nil || w.died.Load() {
		close(w.done)
		return w
	}
	go func() {
		defer close(w.done)
		if w.await() {
			w.died.Store(true)
			onDeath()
		}
	}()
	return w
}

// await waits until the pidfd is readable, which it is when the process has ended, or closed.
func (w *deathWatch) await() (died bool) {
	conn, err := w.pidfd.SyscallConn()
	if err != nil {
		return false
	}
	err = conn.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		died = err == nil && n == 1
		return died
	})
	return err == nil && died
}

func (w *deathWatch) dead() bool {
	return w.died.Load() || w.pidfd == nil && w.p.life() == Dead
}

// close ends the watch and waits for its goroutine.
func (w *deathWatch) close() {
	if w.pidfd != nil {
		_ = w.pidfd.Close() // nothing is lost if it fails
	}
	<-w.done
}
