//go:build !linux

package tape

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFlags are for a mapping that is written.
const mapFlags = unix.MAP_SHARED

// memoryDir is a directory whose files are in memory and outlive a process; empty if there is none.
func memoryDir() string { return "" }

func fallocate(*os.File, int64) error { return unix.EOPNOTSUPP }
