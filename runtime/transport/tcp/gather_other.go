//go:build !linux

package tcp

import (
	"os"

	"golang.org/x/sys/unix"
)

// gather sends one part at a time.
type gather struct{}

// send sends the first part without waiting, and returns how many bytes it sent.
func (*gather) send(fd int, parts [][]byte, _ bool) (int, error) {
	for _, p := range parts {
		if len(p) > 0 {
			return unix.SendmsgN(fd, p, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		}
	}
	return 0, nil
}

const canSplice = false

func splice(int, *os.File, int) (int, error) { return 0, unix.ENOSYS }
