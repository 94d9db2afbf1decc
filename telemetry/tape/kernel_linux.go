package tape

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFlags are for a mapping that is written: its pages are there before the first write.
const mapFlags = unix.MAP_SHARED | unix.MAP_POPULATE

// memoryDir is a directory whose files are in memory and outlive a process; empty if there is none.
func memoryDir() string {
	const dir = "/dev/shm"
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil && fs.Type == unix.TMPFS_MAGIC {
		return dir
	}
	return ""
}

func fallocate(f *os.File, size int64) error { return unix.Fallocate(int(f.Fd()), 0, 0, size) }
