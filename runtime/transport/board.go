package transport

import (
	"sync/atomic"
	"unsafe"
)

// Board is memory in which each rank of a communicator posts, for each collective, data that all others read there. A
// rank writes its post once, however many ranks there are. All ranks must share memory.
//
// Each rank has two slots, used alternately:
//
//	┌ number ┬ bytes, BoardBytes at most …
//
// Invariant: a rank overwrites its post n with post n+2 after it has read all posts n+1. The other ranks posted those
// after they had read all posts n, including this rank's.
//
// Only the goroutine that drives the rank may call Post and Posted.
type Board struct {
	rank  int
	slots [][]byte         // by rank: both slots
	bells []*atomic.Uint32 // doorbells of the other ranks
	keep  any              // keeps the memory mapped

	// Post also writes mine, which no other rank reads.
	_    [128]byte
	mine atomic.Uint64
	_    [128]byte
}

// BoardBytes is the most that a post holds, and BoardSize is the size of both slots of a rank. Data of different
// writers is at least 128 bytes apart, since processors fetch cache lines in pairs.
const (
	BoardBytes = boardSlot - wordBytes
	BoardSize  = 2 * boardSlot
	boardSlot  = 1<<20 + 128
	wordBytes  = 8
	firstLine  = 64 // size of a processor's cache line
	headBytes  = firstLine - wordBytes

	// mostExpected is how much of a post is prefetched before the post is there. Prefetching more would disturb its
	// writer.
	mostExpected = 6 * firstLine
)

// NewBoard makes the Board of a rank. memory has the memory of all ranks, by rank: BoardSize bytes each, zeroed and
// aligned to 128 bytes. bells are the doorbells of the other ranks. The Board keeps a reference to keep.
func NewBoard(rank int, memory [][]byte, bells []*atomic.Uint32, keep any) *Board {
	return &Board{rank: rank, slots: memory, bells: bells, keep: keep}
}

// Post posts head, of headBytes at most, followed by body, BoardBytes in all, as number n, and rings the other ranks.
// Numbers begin with 1 and have no gaps.
func (b *Board) Post(n uint64, head, body []byte) {
	slot := b.slot(b.rank, n)
	to := slot[wordBytes:]
	// The other ranks poll the first cache line. It is written last, and at once: if it were written first, a polling
	// rank would take it away while the rest is being written.
	first := min(len(body), headBytes-len(head))
	copy(to[len(head)+first:], body[first:])
	copy(to[len(head):], body[:first])
	copy(to, head)
	StoreRelease(number(slot), n)
	// The bells of the others are read after the number was written. Ordering these by a store to another word, which
	// only this rank uses, lets the number reach the cache together with the data on its line: a reader that polls the
	// line does not take it away between the two.
	b.mine.Store(n)
	for _, bell := range b.bells {
		RingWord(bell)
	}
}

// Posted returns the memory in which a rank has posted number n, or nil if it hasn't yet. The memory has BoardBytes, of
// which the posted ones stay unchanged until this rank posts number n+1.
func (b *Board) Posted(rank int, n uint64) []byte {
	slot := b.slot(rank, n)
	if number(slot).Load() != n {
		return nil
	}
	return slot[wordBytes:]
}

// Expect announces that n bytes will be read of a post that Posted does not show yet. It makes the processor fetch the
// first of them together with the number, rather than after the number has arrived.
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
