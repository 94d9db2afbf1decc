package tape

import (
	"os"

	"golang.org/x/sys/unix"
)

// News reports new tapes, and new jobs' folders, in directories. A nil News reports none.
type News struct{ f *os.File }

// NewNews watches no directory until Add.
func NewNews() (*News, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	return &News{os.NewFile(uintptr(fd), "inotify")}, nil
}

// Add watches a directory from now on, if it is there and the kernel has room. A second Add does nothing.
func (n *News) Add(dir string) {
	if n == nil {
		return
	}
	if conn, err := n.f.SyscallConn(); err == nil {
		const what = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR
		_ = conn.Control(func(fd uintptr) { _, _ = unix.InotifyAddWatch(int(fd), dir, what) })
	}
}

// Wait waits until a directory has something new since Add or the last Wait. It returns an error if Close ended it.
func (n *News) Wait() error {
	if n == nil {
		return os.ErrClosed
	}
	var events [4096]byte // not decoded: the caller looks for what is new
	_, err := n.f.Read(events[:])
	return err
}

// Close ends Wait.
func (n *News) Close() error {
	if n == nil {
		return nil
	}
	return n.f.Close()
}
