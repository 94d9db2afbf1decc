package ncclras

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrHeld means that another process of this host has the connection to NCCL's RAS.
var ErrHeld = errors.New("ncclras: another process of this host has the connection to NCCL's RAS")

// lockNode takes the right to the node's connection, or fails with ErrHeld: a lock on the job's folder, which ends with
// release, or at the latest with the process.
func lockNode(dir string) (release func(), err error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("ncclras: lock of the node's connection: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrHeld
		}
		return nil, fmt.Errorf("ncclras: lock of the node's connection, %s: %w", dir, err)
	}
	return func() { _ = f.Close() }, nil
}
