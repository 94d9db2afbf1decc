package job

import (
	"cmp"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// port is a TCP port that is kept free for the job, on all addresses of this host, as rank 0 listens on all of them
// unless it knows that all ranks are here. It is bound but doesn't listen: the kernel gives it to no process that asks
// for any port, while a rank that asks for this one gets it, as both allow the address to be reused (Go does, and
// nearly every other server).
type port struct {
	fd, number int
}

func reservePort() (*port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", os.NewSyscallError("socket", err))
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{})
	if err == nil { // only now: a socket that may share would be given a port that somebody has
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	name, nameErr := unix.Getsockname(fd)
	if err := cmp.Or(err, nameErr); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	return &port{fd: fd, number: name.(*unix.SockaddrInet4).Port}, nil
}

func (p *port) release() { unix.Close(p.fd) }
