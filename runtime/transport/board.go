package transport

import (
	"sync/atomic"
	"unsafe"
)

// Board is memory in which each rank of a communicator posts, collective by collective, what all others read there: who
// posts writes once, whatever the number of ranks. It is for ranks that share memory.
//
// Each rank has two slots, which take turns:
//
//	┌ number ┬ bytes, BoardBytes at most …
//
// Invariant: a rank posts number n+2 over number n when it has read all posts n+1. The others posted those when they
// had read all posts n, its own among them.
//
// Post and Posted belong to the goroutine that drives the rank.
type Board struct {
	rank  int
	slots [][]byte         // by rank: both slots
	bells []*atomic.Uint32 // of the others
	keep  any              // what keeps the memory mapped

	// What Post writes besides, which nobody else looks at.
	_    [128]byte
	mine atomic.Uint64
	_    [128]byte
}

// BoardBytes is the most that a post holds, and BoardSize what both slots of a rank take. What different ranks write
// lies at least 128 bytes apart, since processors fetch cache lines in pairs.
const (
	BoardBytes = boardSlot - wordBytes
	BoardSize  = 2 * boardSlot
	boardSlot  = 1<<20 + 128
	wordBytes  = 8
	firstLine  = 64 // of the processor's cache
	headBytes  = firstLine - wordBytes

	// mostExpected is up to where a post is fetched before it is there. Of a long one, its writer would be disturbed.
	mostExpected = 6 * firstLine
)

// NewBoard makes the Board of a rank of the memory of all, by rank: BoardSize bytes each, which were zero and begin at
// a multiple of 128. bells are the doorbells of the others. keep is referred to as long as the Board is.
func NewBoard(rank int, memory [][]byte, bells []*atomic.Uint32, keep any) *Board {
	return &Board{rank: rank, slots: memory, bells: bells, keep: keep}
}

// Post posts head, of headBytes at most, and body behind it, BoardBytes in all, as number n, and rings the others.
// Numbers begin with 1 and have no gaps.
func (b *Board) Post(n uint64, head, body []byte) {
	slot := b.slot(b.rank, n)
	to := slot[wordBytes:]
	// The others look at the first cache line all the time. It is written last, and at once: were it written first, one
	// of them would take it away while what is behind it is written.
	first := min(len(body), headBytes-len(head))
	copy(to[len(head)+first:], body[first:])
	copy(to[len(head):], body[:first])
	copy(to, head)
	StoreRelease(number(slot), n)
	// The others' bells are looked at behind the number. To wait for that with a store of another word, which is this
	// rank's alone, lets the number come to the cache at once with what is beside it: a reader that looks at its cache
	// line all the time does not take the line away between the two.
	b.mine.Store(n)
	for _, bell := range b.bells {
		RingWord(bell)
	}
}

// Posted is the memory in which a rank has posted number n, nil if it hasn't: BoardBytes, of which those that it posted
// stay as they are until this rank posts number n+1.
func (b *Board) Posted(rank int, n uint64) []byte {
	slot := b.slot(rank, n)
	if number(slot).Load() != n {
		return nil
	}
	return slot[wordBytes:]
}

// Expect says that of a post that Posted does not show yet, n bytes will be read. It has the processor fetch the first
// of them together with the number, and not when that has come.
func (b *Board) Expect(rank int, n uint64, bytes int) {
	slot := b.slot(rank, n)
	for at := firstLine; at < min(wordBytes+bytes, mostExpected); at += firstLine {
		prefetch(&slot[at])
	}
}

func (b *Board) slot(rank int, n uint64) []byte {
	at := n % 2 * boardSlot
	return b.slots[rank][at : at+boardSlot : at+boardSlot]
}

func number(slot []byte) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&slot[0])) }
