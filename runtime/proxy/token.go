package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// Token says whose an operation is. It goes with the operation wherever that is carried, in place of a pointer: only
// the process that it names makes anything of its owner's out of it.
type Token struct {
	Comm       lifecycle.CommID
	Rank       int    // of the communicator
	PID        int    // of the rank's process
	Generation uint64 // random; another one each time that a rank of a communicator is connected
}

// ErrToken is the error of an operation whose token does not fit.
var ErrToken = errors.New("the operation's token does not fit")

// fits says what is wrong with a token that ought to be want.
func (t Token) fits(want Token) error {
	switch {
	case t.Comm != want.Comm:
		return fmt.Errorf("%w: it is of communicator %v, not of %v", ErrToken, t.Comm.Short(), want.Comm.Short())
	case t.Generation != want.Generation:
		return fmt.Errorf("%w: it is of another generation of rank %d", ErrToken, t.Rank)
	case t.PID != want.PID:
		return fmt.Errorf("%w: rank %d is process %d, not %d", ErrToken, t.Rank, want.PID, t.PID)
	}
	return nil
}

// kind is what an operation does at its other end.
type kind uint8

const (
	kindData    kind = 1 + iota
	kindCredit       // the receiver has room for more
	kindConfirm      // the sender is connected with all
	kindNotice       // the sender gave up: a transport.Notice
	kindBye          // the sender closed its end
	kindLost         // the sender's process ended, as its carrier tells: a transport.Notice
	kindLeave        // to the carrier itself: the sender needs it no more
	kinds
)

// most is how many bytes a step of this kind has at most.
func (k kind) most() int {
	switch k {
	case kindData:
		return stepBytes
	case kindNotice, kindLost:
		return transport.MaxNotice
	default:
		return 0
	}
}

// headerSize is the size of what goes before an operation's data on a connection.
const headerSize = 40

// header goes before the data of each step of an operation on a connection:
//
//	kind u8, 3 bytes 0, size u32, from u32, to u32, generation of from u64, pid of from u32, 4 bytes 0, credit u64
type header struct {
	kind       kind
	size       int
	from, to   int
	generation uint64
	pid        int
	credit     uint64 // bytes of the opposite stream that from has taken since it last said so
}

func (h *header) append(b []byte) []byte {
	b = append(b, byte(h.kind), 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.size))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.from))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.to))
	b = binary.LittleEndian.AppendUint64(b, h.generation)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.pid))
	b = binary.LittleEndian.AppendUint32(b, 0)
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
		credit:     binary.LittleEndian.Uint64(b[32:]),
	}
}
