package proxy

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bell wakes the goroutine of a process that sends what other processes submit. The goroutine waits in Go's poller for
// a byte in a pipe. On a word of shared memory, it would sleep in a system call and occupy a P of the scheduler. If
// there are two Ps, and the rank sleeps with the other one, nothing reads from the network until the runtime's monitor
// retakes a P; and the monitor, which then always has work, takes a core from the ranks.
type bell struct {
	word  *atomic.Uint32 // in the segment: armed when the owner is about to sleep, else 0
	read  *os.File       // the owner's end of the pipe; nil for others
	write *os.File
	raw   syscall.RawConn // of write
}

const armed = 1

// makeBell makes the bell of this process, and returns the address at which other processes find its pipe.
func makeBell(word *atomic.Uint32) (*bell, uint64, error) {
	read, write, addr, err := makePipe()
	if err != nil {
		return nil, 0, err
	}
	b := &bell{word: word, read: read, write: write}
	b.raw, err = b.write.SyscallConn()
	if err == nil {
		err = read.SetReadDeadline(time.Time{}) // fails if the pipe isn't in the poller; rest would not sleep then
	}
	if err != nil {
		b.close()
		return nil, 0, err
	}
	return b, addr, nil
}

// openBell opens the bell of another process.
func openBell(word *atomic.Uint32, pid int, addr uint64) (*bell, error) {
	fd, err := openPipe(pid, addr)
	if err != nil {
		return nil, err
	}
	b := &bell{word: word, write: os.NewFile(uintptr(fd), "bell")}
	if b.raw, err = b.write.SyscallConn(); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// ring wakes the owner if it sleeps, or is about to. It never waits: a full pipe wakes the owner, too.
func (b *bell) ring() {
	if b.word.Load() == armed && b.word.CompareAndSwap(armed, 0) {
		_ = b.raw.Control(func(fd uintptr) { _, _ = unix.Write(int(fd), stroke) })
	}
}

var stroke = []byte{1}

// rest is called by the owner when it has found nothing to do. The first call only arms the bell: the owner must look
// once more, because ranks that submitted before that rang nobody. The second call sleeps until the bell rings, or for
// limit.
func (b *bell) rest(limit time.Duration) {
	if b.word.Swap(armed) != armed {
		return
	}
	_ = b.read.SetReadDeadline(time.Now().Add(limit))
	var strokes [16]byte
	_, _ = b.read.Read(strokes[:])
	b.word.Store(0)
}

func (b *bell) close() {
	if b.read != nil {
		_ = b.read.Close()
	}
	_ = b.write.Close()
}
