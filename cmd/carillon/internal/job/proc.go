package job

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// openGroup returns pidfds of the living processes of a group, but for its dead leader.
func openGroup(pgid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var fds []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == pgid {
			continue
		}
		if group, err := unix.Getpgid(pid); err != nil || group != pgid || !alive(pid) {
			continue
		}
		if fd, err := unix.PidfdOpen(pid, 0); err == nil { // else it has just ended
			fds = append(fds, fd)
		}
	}
	return fds
}

// alive says whether a process is there and no zombie.
func alive(pid int) bool {
	fields := procStat(pid)
	return len(fields) > 0 && fields[0][0] != 'Z' && fields[0][0] != 'X'
}

// exiting says whether a process has begun to end. It may have closed its files by then, for others to see, long
// before it counts as ended.
func exiting(pid int) bool {
	fields := procStat(pid)
	if len(fields) < 7 {
		return false
	}
	const pfExiting = 0x4 // of include/linux/sched.h
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	return err == nil && flags&pfExiting != 0
}

// procStat returns what the kernel says of a process, from its state on: state, parent, group, session, terminal,
// terminal's group, flags … It is empty when there is no such process.
func procStat(pid int) [][]byte {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	// pid (name) state …, where the name may hold anything, parentheses too.
	return bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
}
