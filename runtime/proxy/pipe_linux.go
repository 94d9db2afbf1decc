package proxy

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// makePipe makes a pipe, and returns the address at which other processes find it: the descriptor and the pipe's
// number. They open the end that this process reads from.
func makePipe() (read, write *os.File, addr uint64, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, nil, 0, err
	}
	read, write = os.NewFile(uintptr(ends[0]), "pipe"), os.NewFile(uintptr(ends[1]), "pipe")
	number, err := pipeNumber(ends[0])
	if err != nil {
		return nil, nil, 0, errors.Join(err, read.Close(), write.Close())
	}
	return read, write, uint64(ends[0])<<32 | number, nil
}

// makeStepPipe makes a pipe with room for a step. This process doesn't write to it.
func makeStepPipe() (*os.File, uint64, error) {
	read, write, addr, err := makePipe()
	if err != nil {
		return nil, 0, err
	}
	_ = write.Close()
	if _, err := unix.FcntlInt(uintptr(addr>>32), unix.F_SETPIPE_SZ, stepBytes); err != nil {
		_ = read.Close()
		return nil, 0, err
	}
	return read, addr, nil
}

// pipeNumber returns the number that identifies a pipe.
func pipeNumber(fd int) (uint64, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return uint64(uint32(st.Ino)), err
}

// openPipe opens a pipe of another process for non-blocking writes. It is opened for reading, too, so that writing
// raises no signal after that process has ended.
func openPipe(pid int, addr uint64) (int, error) {
	path := fmt.Sprintf("/proc/%d/fd/%d", pid, addr>>32)
	// Check before opening: opening a device would have side effects.
	if target, err := os.Readlink(path); err != nil {
		return -1, err
	} else if !strings.HasPrefix(target, "pipe:") {
		return -1, fmt.Errorf("%s is %s and no pipe", path, target)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	if number, err := pipeNumber(fd); err != nil || number != uint64(uint32(addr)) {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("%s is another pipe: %w", path, os.ErrNotExist)
	}
	return fd, nil
}

// lend puts the pages that hold p into a pipe, and returns how many bytes fit; 0 or less if the kernel refuses.
func lend(fd int, p []byte) int {
	part := unix.Iovec{Base: &p[0]}
	part.SetLen(len(p))
	n, _ := unix.Vmsplice(fd, []unix.Iovec{part}, unix.SPLICE_F_NONBLOCK)
	return n
}

// readPipe reads the contents of a pipe, as far as b has room.
func readPipe(f *os.File, b []byte) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for len(b) > 0 {
			n, err := unix.Read(int(fd), b)
			if n <= 0 && err != unix.EINTR {
				return
			}
			b = b[max(n, 0):]
		}
	})
}

// buffered returns how many bytes are in a pipe.
func buffered(f *os.File) (n int) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	return n
}
