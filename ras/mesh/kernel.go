package mesh

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// kernel is the Linux host: pidfds, /proc and cgroups.
type kernel struct {
	proc, cgroups string
}

// Kernel is the machine that this process runs on.
func Kernel() Host { return kernel{"/proc", "/sys/fs/cgroup"} }

// Self is this process as a member. rank is its rank in the job, -1 if it has none, and jobSize the number of ranks, 0 if
// unknown. It fails only if /proc can't be read.
func Self(rank, jobSize int) (Member, error) {
	host, err := os.Hostname()
	if err != nil {
		return Member{}, fmt.Errorf("name this host: %w", err)
	}
	host = host[:min(len(host), maxHost)]
	m := Member{Name: nameOf(host, os.Getpid()), Host: host, PID: os.Getpid(), Rank: rank, JobSize: jobSize}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Member{}, fmt.Errorf("tell this host from others: %w", err)
	}
	if digits, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(id)), "-", "")); err == nil {
		copy(m.BootID[:], digits)
	}
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) == nil {
		m.PIDSpace = st.Ino
	}
	stat, err := readStat("/proc", m.PID)
	if err != nil {
		return Member{}, fmt.Errorf("find when this process started: %w", err)
	}
	m.StartTicks = stat.start
	return m, nil
}

func (kernel) Now() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return ts.Nano()
}

// Watch waits for a pidfd in the runtime's poller, which costs nothing until the process ends.
func (k kernel) Watch(pid int, startTicks uint64, ended func(Exit)) (stop func(), err error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	// The pid may have become another's before it was opened; from now on it can't.
	if stat, err := readStat(k.proc, pid); err != nil || stat.start != startTicks || stat.ended() {
		exit := exitOf(k.proc, pid, startTicks, fd)
		_ = file.Close()
		if exit.Known {
			return nil, &goneError{exit}
		}
		return nil, ErrGone
	}
	conn, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var exit Exit
		died := false
		err := conn.Read(func(fd uintptr) bool {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, 0)
			if died = err == nil && n == 1; died {
				exit = exitOf(k.proc, pid, startTicks, int(fd))
			}
			return died
		})
		if err == nil && died {
			ended(exit)
		}
	}()
	return func() {
		_ = file.Close() // wakes the goroutine; nothing is lost if it fails
		<-done
	}, nil
}

// goneError is ErrGone with how it ended.
type goneError struct{ exit Exit }

func (e *goneError) Error() string        { return ErrGone.Error() + ": " + e.exit.String() }
func (e *goneError) Is(target error) bool { return target == ErrGone }

// exitOf finds how a process ended: the kernel tells its parent, and, until the parent has asked, who may trace it.
func exitOf(proc string, pid int, startTicks uint64, fd int) Exit {
	var child siginfo
	if unix.Waitid(unix.P_PIDFD, fd, child.raw(), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == nil && child.pid() == pid {
		return child.exit()
	}
	// From Linux 6.15 on, the pidfd of a process whose parent has asked tells everybody.
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if unix.IoctlPidfdInfo(fd, &info) == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
		return exitOfStatus(syscall.WaitStatus(info.Exit_code))
	}
	stat, err := readStat(proc, pid)
	if err != nil || stat.start != startTicks || !stat.ended() || !stat.mayTrace {
		return Exit{}
	}
	return exitOfStatus(syscall.WaitStatus(stat.exit))
}

func exitOfStatus(status syscall.WaitStatus) Exit {
	if status.Signaled() {
		return Exit{Known: true, Signal: status.Signal()}
	}
	return Exit{Known: true, Code: status.ExitStatus()}
}

// Look reads the state of the main thread: signals and debuggers stop all threads. A cgroup's freezer stops them too,
// and /proc does not show it.
func (k kernel) Look(pid int, startTicks uint64) (Look, error) {
	stat, err := readStat(k.proc, pid)
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH):
		return Look{}, ErrGone
	case err != nil:
		return Look{}, fmt.Errorf("look at process %d: %w", pid, err)
	case stat.start != startTicks || stat.ended():
		return Look{}, ErrGone
	}
	look := Look{}
	switch stat.state {
	case 'T':
		look.Stopped, look.Cause = true, CauseSignal
	case 't':
		look.Stopped, look.Cause = true, CauseTraced
	default:
		if k.frozen(pid) {
			look.Stopped, look.Cause = true, CauseFrozen
		}
	}
	if look.Stopped {
		look.Turns = k.turns(pid)
	}
	return look, nil
}

// procStat is what /proc/PID/stat says.
type procStat struct {
	state    byte
	start    uint64
	exit     int
	mayTrace bool // whether the kernel told this process what it hides from strangers
}

func (s procStat) ended() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

func readStat(proc string, pid int) (procStat, error) {
	b, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return procStat{}, err
	}
	return parseStat(b)
}

// parseStat reads fields 3, 22 and 52. The second field is the program's name in parentheses, which may hold anything.
func parseStat(b []byte) (procStat, error) {
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	const state, start, exit = 0, 22 - 3, 52 - 3 // the first is field 3
	if len(fields) <= exit || len(fields[state]) != 1 {
		return procStat{}, fmt.Errorf("mesh: stat has %d fields after the name", len(fields))
	}
	s := procStat{state: fields[state][0]}
	var err error
	if s.start, err = strconv.ParseUint(string(fields[start]), 10, 64); err != nil {
		return procStat{}, fmt.Errorf("mesh: start in stat: %w", err)
	}
	if s.exit, err = strconv.Atoi(string(fields[exit])); err != nil {
		return procStat{}, fmt.Errorf("mesh: exit code in stat: %w", err)
	}
	// A zombie has no code, so its address says nothing: an exit code that is not zero was told, one of zero may not be.
	s.mayTrace = s.exit != 0 || os.Geteuid() == 0
	return s, nil
}

// turns adds up how often the main thread gave up its CPU or lost it.
func (k kernel) turns(pid int) (n uint64) {
	b, err := os.ReadFile(filepath.Join(k.proc, strconv.Itoa(pid), "status"))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || !bytes.HasSuffix(name, []byte("voluntary_ctxt_switches")) {
			continue
		}
		if v, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64); err == nil {
			n += v
		}
	}
	return n
}

// frozen says whether the process's cgroup is frozen, or one above it, by the freezer of either version.
func (k kernel) frozen(pid int) bool {
	b, err := os.ReadFile(filepath.Join(k.proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[0] == "0":
			for _, root := range []string{k.cgroups, filepath.Join(k.cgroups, "unified")} {
				events, err := os.ReadFile(filepath.Join(root, parts[2], "cgroup.events"))
				if err == nil && bytes.Contains(events, []byte("frozen 1")) {
					return true
				}
			}
		case parts[1] == "freezer":
			state, err := os.ReadFile(filepath.Join(k.cgroups, "freezer", parts[2], "freezer.state"))
			if err == nil && bytes.HasPrefix(state, []byte("FROZEN")) {
				return true
			}
		}
	}
	return false
}
