package ncclras

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrHeld means that another process of this host has the connection to NCCL's RAS.
var ErrHeld = errors.New("ncclras: another process of this host has the connection to NCCL's RAS")

// nodeLock is the right to the node's connection: a lock on the job's folder, which ends at the latest with the
// process.
type nodeLock struct{ folder *os.File }

// lockNode takes it, or fails with ErrHeld.
func lockNode(dir string) (nodeLock, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nodeLock{}, fmt.Errorf("ncclras: lock of the node's connection: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nodeLock{}, ErrHeld
		}
		return nodeLock{}, fmt.Errorf("ncclras: lock of the node's connection, %s: %w", dir, err)
	}
	return nodeLock{f}, nil
}

func (l nodeLock) release() { _ = l.folder.Close() } // which unlocks it
