package job

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process"
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
		if group, err := unix.Getpgid(pid); err != nil || group != pgid || !process.Running(pid) {
			continue
		}
		if fd, err := unix.PidfdOpen(pid, 0); err == nil { // else it has just ended
			fds = append(fds, fd)
		}
	}
	return fds
}
