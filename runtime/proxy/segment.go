package proxy

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport/shm"
)

// A segment is memory in which ranks of other processes of a node submit operations to the process that owns it.
//
//	┌ header ─────────────┬ claims ──────────┬ next ──────┬ slots ─────────────┬ data ──────────────
//	│ magic, size, token  │ by slot: owner,  │ by slot    │ operations, see    │ by slot, 32 KiB
//	│ bell, and its pipe  │ or 0             │            │ slot               │ each
//	│ submitted (a stack) │                  │            │                    │
//	│ freed, wanted       │                  │            │                    │
//	│ pipes               │                  │            │                    │
//
// A rank claims a slot, fills it, and pushes it onto the stack of submitted slots. The owner takes the whole stack at
// once, and frees a slot when it has sent it. Each of these is a single atomic store or exchange, so if a process dies
// between any two of them, the owner can reclaim its slots.
type segment struct {
	memory *shm.Memory
	claims []atomic.Uint64
	next   []atomic.Uint32 // the slot below in the stack, plus 1
	slots  []slot
	data   []byte

	bell      *bell
	submitted *atomic.Uint32 // the top of the stack, plus 1; 0: it is empty
	freed     *atomic.Uint32 // counts freed slots
	wanted    *atomic.Uint32 // 1: a rank waits for a slot

	pipes []atomic.Uint64 // addresses of the pipes of the last slots; 0 for none
}

// slot is an operation in shared memory.
type slot struct {
	to         uint64 // the generation of the carrier
	generation uint64
	comm       lifecycle.CommID
	credit     uint64
	from, dest int32
	size       uint32
	kind       uint32
	round      uint64   // see op
	piped      uint32   // 1: the data is in the slot's pipe
	back       uint32   // see op
	_          [56]byte // pads to two cache lines
}

const slotSize = 128

var _ [slotSize]byte = [unsafe.Sizeof(slot{})]byte{}

// The size of a segment. Slots with low numbers are used first, so that memory is used only as it is needed.
const (
	sharedSlots = 512
	slotBytes   = 32 << 10
)

const (
	segmentMagic = 'C' | 'A'<<8 | 'R'<<16 | 'I'<<24 | 'L'<<32 | 'P'<<40 | 'X'<<48 | 4<<56

	segmentToken     = 16
	segmentBell      = 128
	segmentBellPipe  = segmentBell + 8
	segmentSubmitted = 256
	segmentFreed     = 384
	segmentWanted    = 512
	segmentPipes     = 640
	segmentClaims    = 4096
	segmentNext      = segmentClaims + sharedSlots*8
	segmentSlots     = segmentNext + sharedSlots*4
	segmentData      = (segmentSlots + sharedSlots*slotSize + 4095) &^ 4095
	segmentSize      = segmentData + sharedSlots*slotBytes
)

// segmentHeader returns the beginning of a segment.
func segmentHeader(token [16]byte) []byte {
	b := make([]byte, segmentToken+len(token))
	binary.LittleEndian.PutUint64(b, segmentMagic)
	binary.LittleEndian.PutUint64(b[8:], segmentSize)
	copy(b[segmentToken:], token[:])
	return b
}

// createSegment makes a segment for this process, and returns the file and the token with which other processes open
// it.
func createSegment() (s *segment, fd int, token [16]byte, err error) {
	_, _ = rand.Read(token[:]) // never fails
	fd, err = shm.CreateMemory(segmentHeader(token), segmentSize)
	if err != nil {
		return nil, -1, token, err
	}
	m, err := shm.MapMemory(fd, segmentSize)
	if err != nil {
		_ = unix.Close(fd)
		return nil, -1, token, err
	}
	s = segmentIn(m)
	var addr uint64
	if s.bell, addr, err = makeBell(s.bellWord()); err != nil {
		_ = unix.Close(fd)
		return nil, -1, token, err
	}
	s.bellPipe().Store(addr)
	return s, fd, token, nil
}

// openSegment maps the segment of another process.
func openSegment(pid, fd int, token [16]byte) (*segment, error) {
	m, err := shm.OpenMemory(pid, fd, segmentHeader(token), segmentSize)
	if err != nil {
		return nil, err
	}
	s := segmentIn(m)
	if s.bell, err = openBell(s.bellWord(), pid, s.bellPipe().Load()); err != nil {
		return nil, fmt.Errorf("open the bell of process %d: %w", pid, err)
	}
	return s, nil
}

func segmentIn(m *shm.Memory) *segment {
	b := m.Bytes()
	word := func(at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&b[at])) }
	return &segment{
		memory: m, data: b[segmentData:segmentSize],
		claims:    unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&b[segmentClaims])), sharedSlots),
		next:      unsafe.Slice((*atomic.Uint32)(unsafe.Pointer(&b[segmentNext])), sharedSlots),
		slots:     unsafe.Slice((*slot)(unsafe.Pointer(&b[segmentSlots])), sharedSlots),
		submitted: word(segmentSubmitted), freed: word(segmentFreed), wanted: word(segmentWanted),
		pipes: unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&b[segmentPipes])), pipedSlots),
	}
}

func (s *segment) bellWord() *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&s.memory.Bytes()[segmentBell]))
}

// bellPipe holds the address at which other processes find the bell's pipe.
func (s *segment) bellPipe() *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&s.memory.Bytes()[segmentBellPipe]))
}

// owner identifies the user of a slot: a process, and the number of one of its streams.
type owner uint64

func ownerOf(pid int, stream uint32) owner { return owner(stream)<<32 | owner(uint32(pid)) }

func (o owner) pid() int { return int(uint32(o)) }

// claim takes a free slot, numbered first or higher; -1 if there is none.
func (s *segment) claim(o owner, first int) int {
	for i := first; i < len(s.claims); i++ {
		if c := &s.claims[i]; c.Load() == 0 && c.CompareAndSwap(0, uint64(o)) {
			return i
		}
	}
	return -1
}

// submit submits a filled slot to the segment's owner, which must be woken afterwards.
func (s *segment) submit(i int) {
	for {
		top := s.submitted.Load()
		s.next[i].Store(top)
		if s.submitted.CompareAndSwap(top, uint32(i)+1) {
			return
		}
	}
}

// take appends the submitted slots, oldest first. It is for the segment's owner.
func (s *segment) take(to []int) []int {
	first := len(to)
	for top := s.submitted.Swap(0); top != 0 && top <= sharedSlots && len(to)-first < sharedSlots; {
		to = append(to, int(top)-1)
		top = s.next[top-1].Load()
	}
	slices.Reverse(to[first:])
	return to
}

// owner returns the user of a slot, 0 if it is free.
func (s *segment) owner(i int) owner { return owner(s.claims[i].Load()) }

// free frees a slot of a user, and reports whether a rank waits for one. It is for the segment's owner.
func (s *segment) free(i int, o owner) (wanted bool) {
	if !s.claims[i].CompareAndSwap(uint64(o), 0) {
		return false
	}
	s.freed.Add(1)
	return s.wanted.Load() != 0 && s.wanted.CompareAndSwap(1, 0)
}

// bytes returns the data of a slot.
func (s *segment) bytes(i int) []byte { return s.data[i*slotBytes : (i+1)*slotBytes : (i+1)*slotBytes] }
