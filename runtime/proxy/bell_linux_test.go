package proxy

import (
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// bells makes both sides of a bell.
func bells(t *testing.T) (owner, other *bell) {
	t.Helper()
	word := new(atomic.Uint32)
	owner, addr, err := makeBell(word)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(owner.close)
	other, err = openBell(word, os.Getpid(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.close)
	return owner, other
}

func TestBellEndsRest(t *testing.T) {
	owner, other := bells(t)
	for _, b := range []*bell{owner, other} {
		owner.rest(time.Hour) // arms it
		b.ring()
		if n := buffered(owner.read); n != 1 {
			t.Fatalf("%d bytes are in the pipe, want 1", n)
		}
		owner.rest(time.Hour) // arms it again
		owner.rest(time.Hour) // reads the byte
		if n := buffered(owner.read); n != 0 || owner.word.Load() != 0 {
			t.Fatal("the byte is still there")
		}
		owner.rest(time.Hour)
		time.AfterFunc(time.Millisecond, b.ring)
		owner.rest(time.Hour) // sleeps
	}
}

// Ranks that submit before the owner's last look ring nobody, and nothing is left in the pipe.
func TestBellOfWhoIsAwake(t *testing.T) {
	owner, other := bells(t)
	other.ring()
	if n := buffered(owner.read); n != 0 {
		t.Errorf("%d bytes are in the pipe", n)
	}
	owner.rest(time.Hour)
	owner.rest(time.Microsecond) // it returns by itself
	if owner.word.Load() != 0 {
		t.Error("an owner that is awake is taken to sleep")
	}
}

// Another process may fill the pipe, or ring after the owner has closed it.
func TestBellNeverWaits(t *testing.T) {
	owner, other := bells(t)
	if err := owner.write.SetWriteDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := owner.write.Write(make([]byte, 1<<20)); err == nil {
		t.Fatalf("the pipe took %d bytes", n)
	}
	owner.rest(time.Hour)
	other.ring()
	owner.rest(time.Hour)
	owner.rest(time.Hour) // the rest in the pipe wakes it again
	owner.close()
	owner.word.Store(armed)
	other.ring()
	owner.word.Store(armed)
	owner.ring()
}
