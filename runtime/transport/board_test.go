package transport

import (
	"bytes"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// boards makes the Boards of the ranks of a communicator, over the same memory.
func boards(size int) []*Board {
	memory := make([][]byte, size)
	words := make([]*atomic.Uint32, size)
	for r := range memory {
		memory[r], words[r] = make([]byte, BoardSize), new(atomic.Uint32)
	}
	all := make([]*Board, size)
	for r := range all {
		bells := append(append([]*atomic.Uint32{}, words[:r]...), words[r+1:]...)
		all[r] = NewBoard(r, memory, bells, nil)
	}
	return all
}

func TestBoardShowsWhatIsPosted(t *testing.T) {
	b := boards(2)
	if b[1].Posted(0, 1) != nil {
		t.Error("something is there before it was posted")
	}
	b[0].Post(1, []byte("head"), []byte("body"))
	b[0].Post(2, []byte("next"), nil)
	for n, want := range map[uint64]string{1: "headbody", 2: "next"} {
		if got := b[1].Posted(0, n); !bytes.HasPrefix(got, []byte(want)) {
			t.Errorf("number %d is %.8q, want %q", n, got, want)
		}
	}
	b[0].Post(3, nil, []byte("over"))
	if b[1].Posted(0, 1) != nil || b[1].Posted(0, 3) == nil {
		t.Error("number 3 doesn't stand in the place of number 1")
	}
}

// A post may fill the slot to its last byte, but not exceed it.
func TestBoardHoldsItsBytes(t *testing.T) {
	b := boards(2)
	full := bytes.Repeat([]byte{7}, BoardBytes)
	b[0].Post(1, nil, full)
	b[0].Post(2, full[:40], full[40:])
	for n := uint64(1); n <= 2; n++ {
		if got := b[1].Posted(0, n); !bytes.Equal(got, full) {
			t.Errorf("number %d has %d bytes, or others; want %d", n, len(got), len(full))
		}
	}
	if b[1].Posted(1, 1) != nil {
		t.Error("it is in the other rank's memory, too")
	}
}

// Ranks that post, and read all others' posts before they go on, never see a post change.
func TestBoardSlotsTakeTurns(t *testing.T) {
	const size, rounds = 4, 2000
	var wg sync.WaitGroup
	for r, b := range boards(size) {
		wg.Go(func() {
			for n := uint64(1); n <= rounds; n++ {
				b.Post(n, []byte{byte(n), byte(r)}, nil)
				for p := range size {
					for b.Posted(p, n) == nil {
						runtime.Gosched()
					}
					if got := b.Posted(p, n); got[0] != byte(n) || got[1] != byte(p) {
						t.Errorf("post %d of rank %d has become %v", n, p, got[:2])
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// A head and a body of any length are contiguous, even across the end of the first cache line.
func TestBoardJoinsHeadAndBody(t *testing.T) {
	b, n := boards(2), uint64(0)
	for head := range headBytes + 1 {
		for body := range 2*firstLine + 1 {
			n++
			want := make([]byte, head+body)
			for i := range want {
				want[i] = byte(n) ^ byte(i)
			}
			b[0].Post(n, want[:head], want[head:])
			if got := b[1].Posted(0, n); !bytes.HasPrefix(got, want) {
				t.Fatalf("%d bytes and %d have become %x, want %x", head, body, got[:len(want)], want)
			}
			b[1].Expect(0, n+1, head+body) // may access any memory of the slot
		}
	}
}

func TestPostRings(t *testing.T) {
	b := boards(3)
	words := b[0].bells
	for _, w := range words {
		w.Store(armed)
	}
	b[0].Post(1, nil, nil)
	for _, w := range words {
		if w.Load() != awake {
			t.Error("a rank that sleeps was not rung")
		}
	}
}
