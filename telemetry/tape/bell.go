package tape

import (
	"encoding/binary"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bellWatch hears a tape's bell for a follower, in a goroutine of its own that is in the kernel until then. A follower that slept there
// itself would hold a processor of Go's scheduler, with each sleep anew, until the scheduler's monitor takes it away: up to 10 ms each
// time, in which the ranks of a process that uses all processors have one less.
type bellWatch struct {
	file    *os.File
	page    []byte        // the header's page, mapped for its address alone: see futexWait
	rang    chan struct{} // holds one ring
	err     atomic.Pointer[error]
	closing atomic.Bool
	ended   chan struct{}
}

// longestWait bounds a wait for the bell, should a kernel ever forget one.
const longestWait = time.Minute

func (t *file) watchBell() (*bellWatch, error) {
	page, err := unix.Mmap(int(t.f.Fd()), 0, headerSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	b := &bellWatch{file: t.f, page: page, rang: make(chan struct{}, 1), ended: make(chan struct{})}
	go b.run()
	return b, nil
}

func (b *bellWatch) run() {
	defer close(b.ended)
	heard := uint32(0)
	for !b.closing.Load() {
		var word [4]byte
		_, err := b.file.ReadAt(word[:], hdrBell)
		if bell := binary.LittleEndian.Uint32(word[:]); err == nil && bell != heard {
			heard = bell
			b.ring()
			continue
		}
		if err == nil {
			err = futexWait(b.word(), heard, longestWait)
		}
		if err != nil {
			b.err.Store(&err)
			b.ring()
			return
		}
	}
}

// ring tells the follower.
func (b *bellWatch) ring() {
	select {
	case b.rang <- struct{}{}:
	default: // it hasn't heard the last one yet
	}
}

func (b *bellWatch) word() *uint32 { return (*uint32)(unsafe.Pointer(&b.page[hdrBell])) }

// close ends the watch. It wakes other followers of the tape, too, which does them no harm.
func (b *bellWatch) close() error {
	b.closing.Store(true)
	for again := time.NewTicker(time.Millisecond); ; {
		futexWake(b.word())
		select {
		case <-b.ended:
			again.Stop()
			return unix.Munmap(b.page)
		case <-again.C: // it was about to wait
		}
	}
}
