package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// Token identifies the owner of an operation. It travels with the operation instead of a pointer, and only the process
// that it names uses it to find the owner.
type Token struct {
	Comm       lifecycle.CommID
	Rank       int    // rank in the communicator
	PID        int    // process id of the rank
	Generation uint64 // random; new for each rank of each connected communicator
}

// ErrToken is the error of an operation whose token does not match.
var ErrToken = errors.New("the operation's token does not fit")

// fits returns why a token is not want; nil if it is.
func (t Token) fits(want Token) error {
	switch {
	case t.Comm != want.Comm:
		return fmt.Errorf("%w: it is for communicator %v, not %v", ErrToken, t.Comm.Short(), want.Comm.Short())
	case t.Generation != want.Generation:
		return fmt.Errorf("%w: it is for another generation of rank %d", ErrToken, t.Rank)
	case t.PID != want.PID:
		return fmt.Errorf("%w: rank %d is process %d, not %d", ErrToken, t.Rank, want.PID, t.PID)
	}
	return nil
}

// kind is the kind of an operation.
type kind uint8

const (
	kindData    kind = 1 + iota
	kindCredit       // the receiver has room for more data
	kindConfirm      // the sender is connected to all ranks
	kindNotice       // the sender gave up: a transport.Notice
	kindBye          // the sender closed its end
	kindLost         // the sender's process has ended, as its carrier reports: a transport.Notice
	kindLeave        // for the carrier itself: the sender no longer needs it
	kindLent         // data in the sender's memory; the receiver reports its arrival
	kinds
)

// isData reports whether a step of this kind is data of a stream.
func (k kind) isData() bool { return k == kindData || k == kindLent }

// maxBytes returns the largest size of a step of this kind.
func (k kind) maxBytes() int {
	switch k {
	case kindData, kindLent:
		return stepBytes
	case kindNotice, kindLost:
		return transport.MaxNotice
	default:
		return 0
	}
}

// headerSize is the size of the header of a step on a connection.
const headerSize = 40

// header precedes the data of each step of an operation on a connection:
//
//	kind u8, 3 bytes 0, size u32, from u32, to u32, generation of from u64, pid of from u32, arrived u32, credit u64
type header struct {
	kind       kind
	size       int
	from, to   int
	generation uint64
	pid        int
	arrived    uint32 // bytes of lent data of the opposite stream that have arrived since the last step
	credit     uint64 // bytes of the opposite stream that from has taken since its last credit
}

func (h *header) append(b []byte) []byte {
	b = append(b, byte(h.kind), 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.size))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.from))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.to))
	b = binary.LittleEndian.AppendUint64(b, h.generation)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.pid))
	b = binary.LittleEndian.AppendUint32(b, h.arrived)
	return binary.LittleEndian.AppendUint64(b, h.credit)
}

func readHeader(b []byte) header {
	return header{
		kind:       kind(b[0]),
		size:       int(binary.LittleEndian.Uint32(b[4:])),
		from:       int(binary.LittleEndian.Uint32(b[8:])),
		to:         int(binary.LittleEndian.Uint32(b[12:])),
		generation: binary.LittleEndian.Uint64(b[16:]),
		pid:        int(binary.LittleEndian.Uint32(b[24:])),
		arrived:    binary.LittleEndian.Uint32(b[28:]),
		credit:     binary.LittleEndian.Uint64(b[32:]),
	}
}
