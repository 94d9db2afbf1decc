package process

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrGone means that a process has ended.
var ErrGone = errors.New("the process has ended")

// kernel says where a kernel shows processes, as Linux does; tests have their own.
type kernel struct {
	proc, cgroups string
	pidfd         func(pid, flags int) (int, error)
}

// stat is the contents of /proc/PID/stat.
type stat struct {
	state byte
	flags uint64 // the kernel's PF_*
	start uint64 // in ticks since boot; 0 if unknown
	exit  int    // the status of wait(2); also 0 if this process may not see it
	used  time.Duration
}

// tick is the unit of times in /proc/PID/stat, the same on all machines that Go runs on.
const tick = 10 * time.Millisecond

func (s stat) ended() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

// stat looks a pid up. The error is ErrGone if there is no such process.
func (k kernel) stat(pid int) (stat, error) {
	b, err := os.ReadFile(filepath.Join(k.proc, strconv.Itoa(pid), "stat"))
	switch {
	case err == nil:
		return parseStat(b)
	case errors.Is(err, unix.ESRCH), errors.Is(err, os.ErrNotExist) && unix.Kill(pid, 0) == unix.ESRCH:
		return stat{}, ErrGone
	case errors.Is(err, os.ErrNotExist):
		return statWithoutProc(pid)
	default:
		return stat{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
}

// parseStat reads fields 3, 9, 14, 15, 22 and 52, after the name in parentheses, which may contain anything.
func parseStat(b []byte) (s stat, err error) {
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	const state, flags, user, system, start, exit = 0, 9 - 3, 14 - 3, 15 - 3, 22 - 3, 52 - 3 // the first is field 3
	if len(fields) <= exit || len(fields[state]) != 1 {
		return s, fmt.Errorf("look at a process: its stat has %d fields after the name", len(fields))
	}
	s.state = fields[state][0]
	number := func(field int) (n uint64) {
		if err == nil {
			n, err = strconv.ParseUint(string(fields[field]), 10, 64)
		}
		return n
	}
	s.flags, s.start, s.exit = number(flags), number(start), int(number(exit))
	s.used = time.Duration(number(user)+number(system)) * tick
	if err != nil {
		return s, fmt.Errorf("look at a process: %w", err)
	}
	return s, nil
}

// of is stat for an ID. The error is ErrGone if the process has ended: it is a zombie, or another process has its pid.
func (k kernel) of(id ID) (stat, error) {
	s, err := k.stat(id.PID)
	if err == nil && (s.ended() || id.StartTicks != 0 && s.start != 0 && s.start != id.StartTicks) {
		err = ErrGone
	}
	return s, err
}

func (k kernel) ended(id ID) bool {
	_, err := k.of(id)
	return errors.Is(err, ErrGone)
}

// Running tells whether a process with the given pid exists in this pid namespace and is no zombie.
func Running(pid int) bool { return !this.ended(ID{PID: pid}) }

// Exiting tells whether a process has begun to exit. It may have closed its connections long before it counts as ended.
func Exiting(pid int) bool {
	const pfExiting = 0x4 // of include/linux/sched.h
	s, err := this.stat(pid)
	return err == nil && s.flags&pfExiting != 0
}

// CPU is the processor time that the process has used; 0 if unknown.
func (id ID) CPU() time.Duration {
	s, err := this.of(id)
	if err != nil {
		return 0
	}
	return s.used
}

// State is why a process doesn't run.
type State uint8

// The states.
const (
	Runs    State = iota // nothing: it runs or waits
	Stopped              // a signal stopped its threads
	Traced               // a debugger holds it
	Frozen               // its cgroup is frozen, or one above it
)

// Look is the state of a process at a moment.
type Look struct {
	State State
	// Turns counts the context switches of the main thread if the process doesn't run: if two Looks have the same
	// count, it did not run in between. This matters with a debugger that traces system calls, which stops the process
	// continually.
	Turns uint64
}

// Look looks at the main thread of the process, as signals and debuggers stop all threads. The error is ErrGone if it
// has ended.
func (id ID) Look() (Look, error) { return this.look(id) }

func (k kernel) look(id ID) (look Look, err error) {
	s, err := k.of(id)
	if err != nil {
		return look, err
	}
	switch {
	case s.state == 'T':
		look.State = Stopped
	case s.state == 't':
		look.State = Traced
	case k.frozen(id.PID): // the state does not show this
		look.State = Frozen
	default:
		return look, nil
	}
	look.Turns = k.turns(id.PID)
	return look, nil
}

// turns counts the voluntary and involuntary context switches of the main thread.
func (k kernel) turns(pid int) (n uint64) {
	for name, value := range k.status(pid) {
		if !strings.HasSuffix(name, "voluntary_ctxt_switches") {
			continue
		}
		if v, err := strconv.ParseUint(value, 10, 64); err == nil {
			n += v
		}
	}
	return n
}

// status yields the lines of /proc/PID/status; none for a process that has ended.
func (k kernel) status(pid int) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		b, _ := os.ReadFile(filepath.Join(k.proc, strconv.Itoa(pid), "status"))
		for line := range strings.Lines(string(b)) {
			name, value, _ := strings.Cut(line, ":")
			if !yield(name, strings.TrimSpace(value)) {
				return
			}
		}
	}
}

// find is the pid, in this namespace, of a process of another pid namespace; 0 if it is not found. all tells whether
// all processes could be looked at.
func (k kernel) find(id ID) (pid int, all bool) {
	entries, err := os.ReadDir(k.proc)
	all = err == nil
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || k.innermost(pid) != id.PID {
			continue
		}
		if s, err := k.stat(pid); err != nil || s.start != id.StartTicks {
			continue
		}
		switch space, err := os.Readlink(filepath.Join(k.proc, entry.Name(), "ns", "pid")); {
		case err != nil:
			all = false
		case space == fmt.Sprintf("pid:[%d]", id.PIDSpace):
			return pid, true
		}
	}
	return 0, all
}

// innermost is a process's pid in its own pid namespace; 0 if unknown.
func (k kernel) innermost(pid int) int {
	for name, value := range k.status(pid) {
		if numbers := strings.Fields(value); name == "NSpid" && len(numbers) > 0 {
			n, _ := strconv.Atoi(numbers[len(numbers)-1]) // 0 is no process
			return n
		}
	}
	return 0
}

// frozen tells whether the process's cgroup, or one above it, is frozen, by the freezer of either version.
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
