package shm

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// magic is "CARILLN" and the version of this layout.
const magic = 'C' | 'A'<<8 | 'R'<<16 | 'I'<<24 | 'L'<<32 | 'L'<<40 | 'N'<<48 | 2<<56

// Offsets in the header. Data of different writers is at least 128 bytes apart, since processors fetch cache lines in
// pairs.
const (
	headerMagic  = 0
	headerRing   = 8
	headerSlots  = 16
	headerComm   = 24
	headerToken  = 40
	headerBell   = 128
	headerAlerts = 256
	headerGaveUp = 384
	headerShared = 392 // 1: the owner reaches all others through shared memory
	headerAttend = 396 // 1: the owner's Waiter attends to its process's proxy
	headerNotice = 512
	headerSize   = 4096

	// The slots begin on the first page after the board.
	slotsStart = headerSize + (transport.BoardSize+headerSize-1)/headerSize*headerSize
)

// Offsets in a slot.
const (
	slotTail    = 0
	slotHead    = 128
	slotVerdict = 256
	slotStatus  = 384
	slotNotice  = 512
	slotRing    = 4096
)

// The notices must fit in front of what follows them.
var (
	_ [slotRing - slotNotice - transport.MaxNotice]byte
	_ [headerSize - headerNotice - transport.MaxNotice]byte
)

// The values of a slot's verdict: whether the owner could open the inbox of the slot's peer, and more.
const (
	verdictNone uint32 = iota
	verdictOpened
	verdictRefused
	verdictConnected // opened, and the owner is connected to all
)

// The bits of a slot's status.
const (
	statusNotice uint32 = 1 << iota // the notice is complete
	statusClosed                    // the peer closed its end
)

// ringSize returns the size of each ring of an inbox with that many slots, a power of two. All rings in use should fit
// into the caches. Measured with BenchmarkStream of package fabric.
func ringSize(slots int) uint64 {
	switch {
	case slots <= 4:
		return 2 << 20
	case slots <= 8:
		return 1 << 20
	case slots <= 16:
		return 512 << 10
	case slots <= 64:
		return 128 << 10
	default:
		return 64 << 10
	}
}

func inboxSize(slots int) int64 {
	return slotsStart + int64(slots)*(slotRing+int64(ringSize(slots)))
}

// boardOf returns the owner's part of the communicator's Board.
func boardOf(mem []byte) []byte {
	return mem[headerSize : headerSize+transport.BoardSize : headerSize+transport.BoardSize]
}

// header returns the beginning of an inbox, which peers check.
func header(id lifecycle.CommID, slots int, token [16]byte) []byte {
	b := make([]byte, headerToken+len(token))
	binary.LittleEndian.PutUint64(b[headerMagic:], magic)
	binary.LittleEndian.PutUint64(b[headerRing:], ringSize(slots))
	binary.LittleEndian.PutUint64(b[headerSlots:], uint64(slots))
	copy(b[headerComm:], id[:])
	copy(b[headerToken:], token[:])
	return b
}

// slot is one peer's part of a mapped inbox.
type slot struct {
	tail    *atomic.Uint64 // end of the data written by the peer; positions never wrap
	head    *atomic.Uint64 // end of the data released by the owner
	verdict *atomic.Uint32
	status  *atomic.Uint32
	notice  []byte
	ring    []byte
}

func slotOf(mem []byte, slots, rank int) slot {
	size := int(ringSize(slots))
	s := mem[slotsStart+rank*(slotRing+size):][: slotRing+size : slotRing+size]
	return slot{
		tail:    word64(s, slotTail),
		head:    word64(s, slotHead),
		verdict: word32(s, slotVerdict),
		status:  word32(s, slotStatus),
		notice:  s[slotNotice:][:transport.MaxNotice],
		ring:    s[slotRing:],
	}
}

func word64(mem []byte, at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&mem[at])) }
func word32(mem []byte, at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&mem[at])) }
