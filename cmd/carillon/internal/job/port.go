package job

import (
	"cmp"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// reserve keeps a free TCP port for the job, on all addresses of this host, until release. The socket is bound but
// doesn't listen: the kernel gives the port to no process that asks for any port, while a rank that asks for this port
// gets it, as both allow the address to be reused (Go does, and nearly every other server).
func (c *Config) reserve() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", os.NewSyscallError("socket", err))
	}
	unix.CloseOnExec(fd) // no rank has been started yet
	c.reserved = append(c.reserved, fd)
	err = unix.Bind(fd, &unix.SockaddrInet4{})
	if err == nil { // not before: with SO_REUSEADDR, the kernel may choose a port that is in use
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	name, nameErr := unix.Getsockname(fd)
	if err := cmp.Or(err, nameErr); err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return name.(*unix.SockaddrInet4).Port, nil
}

func (c *Config) release() {
	for _, fd := range c.reserved {
		unix.Close(fd)
	}
}
