package futex

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestWakeEndsWait(t *testing.T) {
	var word uint32
	ended := make(chan error, 2)
	for range 2 {
		go func() { ended <- Wait(&word, 0, time.Hour) }()
	}
	atomic.StoreUint32(&word, 1) // a goroutine that checks from here on doesn't sleep
	for range 2 {
		for again := time.NewTicker(time.Millisecond); ; {
			if err := Wake(&word, All); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-again.C: // the waiter was about to check
				continue
			}
			break
		}
	}
}

func TestWaitEndsByItself(t *testing.T) {
	var word uint32
	if err := Wait(&word, 0, time.Millisecond); err != nil {
		t.Errorf("when the time is up: %v", err)
	}
	if err := Wait(&word, 7, time.Hour); err != nil {
		t.Errorf("of a word that has another value: %v", err)
	}
}

// TestLostMemory: a word in unmapped memory is an error, and no signal.
func TestLostMemory(t *testing.T) {
	page, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(page) }()
	word := (*uint32)(unsafe.Pointer(unsafe.SliceData(page)))
	if err := Wait(word, 0, time.Hour); !errors.Is(err, unix.EFAULT) {
		t.Errorf("wait: %v", err)
	}
	if err := Wake(word, All); !errors.Is(err, unix.EFAULT) {
		t.Errorf("wake: %v", err)
	}
}
