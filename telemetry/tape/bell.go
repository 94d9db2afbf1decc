package tape

import (
	"encoding/binary"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process/futex"
)

// bellWatch waits for a tape's bell on behalf of a follower, in a goroutine of its own that blocks in futex(2). A
// goroutine that blocks in the kernel keeps its P until Go's monitor retakes it, for up to 10 ms, during which the
// ranks of a process that uses all processors have one less. A follower that blocked in the kernel itself would keep
// its P on each tick; the watch does so once for each ring of the bell, and rings are rare.
type bellWatch struct {
	file    *os.File
	page    []byte        // the header's page, mapped for its address alone: see futex.Wait; unmapped by run
	rang    chan struct{} // holds one ring
	err     atomic.Pointer[error]
	closing atomic.Bool
	ended   chan struct{}
}

// longestWait bounds a wait for the bell, in case a wake-up is lost.
const longestWait = time.Minute

func (t *Reader) watchBell() (*bellWatch, error) {
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
	defer func() { _ = unix.Munmap(b.page) }()
	heard := uint32(0)
	for !b.closing.Load() {
		var word [4]byte
		_, err := b.file.ReadAt(word[:], bellAt)
		if bell := binary.LittleEndian.Uint32(word[:]); err == nil && bell != heard {
			heard = bell
			b.ring()
			continue
		}
		if err == nil {
			err = futex.Wait(b.word(), heard, longestWait)
		}
		if err != nil {
			b.err.Store(&err)
			b.ring()
			return
		}
	}
}

// ring ends the follower's sleep, or the next one.
func (b *bellWatch) ring() {
	select {
	case b.rang <- struct{}{}:
	default: // the last ring has not been taken yet
	}
}

func (b *bellWatch) word() *uint32 { return (*uint32)(unsafe.Pointer(&b.page[bellAt])) }

// close ends the watch. It also wakes other followers, which does no harm. If the file was cut short, nobody can be
// woken: then the goroutine ends when its wait times out.
func (b *bellWatch) close() {
	b.closing.Store(true)
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for futex.Wake(b.word(), futex.All) == nil {
		select {
		case <-b.ended:
			return
		case <-again.C: // the goroutine was about to wait
		}
	}
}
