package fabric

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// errDead means that a process has ended.
var errDead = errors.New("the process has ended")

// process names a process for good.
type process struct {
	pid  int
	born uint64
}

// deaths watches other processes of this host, for all communicators, with one goroutine. The kernel tells through the
// processes' pidfds, within milliseconds.
type deaths struct {
	mu       sync.Mutex
	epoll    *os.File // nil until the first watch; the runtime's poller watches it in turn
	poll     int      // its descriptor
	watched  map[process]*watched
	byFD     map[int32]*watched
	next     int
	finished sync.WaitGroup
}

// watched is one process and whom its death concerns.
type watched struct {
	process process
	fd      int
	tell    map[int]func()
}

func newDeaths() *deaths {
	return &deaths{watched: make(map[process]*watched), byFD: make(map[int32]*watched)}
}

// watch has tell called once when p ends, unless cancel was called before. It returns errDead if p has ended already.
// tell runs on the goroutine of deaths and must not block.
func (d *deaths) watch(p process, tell func()) (cancel func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.start(); err != nil {
		return nil, err
	}
	w := d.watched[p]
	if w == nil {
		if w, err = d.open(p); err != nil {
			return nil, err
		}
	}
	id := d.next
	d.next++
	w.tell[id] = tell
	return func() { d.cancel(w, id) }, nil
}

// start makes the epoll instance and its goroutine. d.mu is held.
func (d *deaths) start() error {
	if d.epoll != nil {
		return nil
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("watch processes: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or the runtime would not poll it
		_ = unix.Close(fd)
		return fmt.Errorf("watch processes: %w", err)
	}
	d.epoll, d.poll = os.NewFile(uintptr(fd), "epoll"), fd
	conn, err := d.epoll.SyscallConn()
	if err != nil {
		_ = d.epoll.Close()
		d.epoll = nil
		return fmt.Errorf("watch processes: %w", err)
	}
	d.finished.Go(func() {
		// Read returns when the file is closed.
		_ = conn.Read(func(fd uintptr) bool {
			d.collect(int(fd))
			return false
		})
	})
	return nil
}

// open starts to watch p. d.mu is held.
func (d *deaths) open(p process) (*watched, error) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, errDead
	}
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", p.pid, err)
	}
	// From here on fd names one process for good. Is it the one that was meant, or did the pid get a new owner?
	if born, err := startTime(p.pid); err != nil || born != p.born {
		_ = unix.Close(fd)
		return nil, errDead
	}
	if err := unix.EpollCtl(d.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("watch process %d: %w", p.pid, err)
	}
	w := &watched{process: p, fd: fd, tell: make(map[int]func())}
	d.watched[p], d.byFD[int32(fd)] = w, w
	return w, nil
}

// forget stops watching a process. d.mu is held.
func (d *deaths) forget(w *watched) {
	delete(d.watched, w.process)
	delete(d.byFD, int32(w.fd))
	_ = unix.Close(w.fd) // which takes it out of the epoll instance
}

func (d *deaths) cancel(w *watched, id int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := w.tell[id]; !ok {
		return
	}
	if delete(w.tell, id); len(w.tell) == 0 {
		d.forget(w)
	}
}

// collect tells of the processes that have ended.
func (d *deaths) collect(poll int) {
	var events [16]unix.EpollEvent
	for {
		n, err := unix.EpollWait(poll, events[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 {
			return
		}
		for _, e := range events[:n] {
			for _, tell := range d.bury(e.Fd) {
				tell()
			}
		}
	}
}

// bury forgets a process that has ended and returns whom to tell.
func (d *deaths) bury(fd int32) map[int]func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.byFD[fd]
	if w == nil {
		return nil
	}
	d.forget(w)
	tell := w.tell
	w.tell = nil
	return tell
}

// close ends the goroutine and waits for it.
func (d *deaths) close() {
	d.mu.Lock()
	if d.epoll != nil {
		_ = d.epoll.Close()
		for _, w := range d.watched {
			d.forget(w)
		}
	}
	d.mu.Unlock()
	d.finished.Wait()
}
