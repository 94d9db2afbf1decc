package fabric

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// bootID names the running kernel. All containers of a machine share it.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("tell this host from others (set HostID to do without): %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// hostName is for people, so it may be unknown.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "?"
	}
	return name[:min(len(name), 64)]
}

// pidNamespace names the namespace in which this process's pids have their meaning; 0 if the kernel does not tell.
func pidNamespace() uint64 {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return 0
	}
	return st.Ino
}

// startTime is when a process was started, in the kernel's ticks since boot: together with the pid it names a process for good.
func startTime(pid int) (uint64, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in parentheses, which may contain anything. The start time is field 22.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("%s has %d fields after the name", path, len(fields))
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}
