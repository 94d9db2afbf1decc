package fabric

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport/shm"
	"github.com/carillon-rt/carillon/runtime/transport/tcp"
)

// cardVersion changes whenever ranks with another one could not connect.
const cardVersion = 1

// card is what a rank tells all others before they connect: who it is, where, and how it can be reached.
type card struct {
	comm   lifecycle.CommID
	fabric [16]byte // a random name of the Fabric
	hostID string
	host   string // the host's name, for people
	pid    int
	born   uint64       // start time of the process, in the kernel's ticks
	pidNS  uint64       // the pid namespace in which pid means something
	inbox  shm.Location // zero: shared memory is switched off
	tcp    string       // address and port
	gate   tcp.GateID   // which of the listener's gates is the rank's
}

func (c *card) encode() []byte {
	b := make([]byte, 0, 256)
	b = append(b, cardVersion)
	b = append(b, c.comm[:]...)
	b = append(b, c.fabric[:]...)
	b = appendString(b, c.hostID)
	b = appendString(b, c.host)
	b = binary.AppendUvarint(b, uint64(c.pid))
	b = binary.AppendUvarint(b, c.born)
	b = binary.AppendUvarint(b, c.pidNS)
	b = binary.AppendUvarint(b, uint64(c.inbox.FD))
	b = binary.AppendUvarint(b, uint64(c.inbox.Slots))
	b = append(b, c.inbox.Token[:]...)
	b = appendString(b, c.tcp)
	return append(b, c.gate[:]...)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errCardShort = errors.New("card is cut short")

func decodeCard(b []byte) (*card, error) {
	if len(b) == 0 {
		return nil, errors.New("card is empty")
	}
	if b[0] != cardVersion {
		return nil, fmt.Errorf("card has version %d, this build of Carillon speaks %d: all ranks must run the same build", b[0], cardVersion)
	}
	c := new(card)
	d := decoder{rest: b[1:]}
	d.bytes(c.comm[:])
	d.bytes(c.fabric[:])
	c.hostID = d.string()
	c.host = d.string()
	c.pid = d.int()
	c.born = d.uvarint()
	c.pidNS = d.uvarint()
	c.inbox.FD = d.int()
	c.inbox.Slots = d.int()
	d.bytes(c.inbox.Token[:])
	c.tcp = d.string()
	d.bytes(c.gate[:])
	if d.err == nil && len(d.rest) != 0 {
		d.err = fmt.Errorf("card has %d bytes too many", len(d.rest))
	}
	if d.err != nil {
		return nil, d.err
	}
	return c, nil
}

// decoder reads fields one after another; the first failure sticks.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) bytes(dst []byte) {
	if len(d.rest) < len(dst) {
		d.err, d.rest = errCardShort, nil
		return
	}
	copy(dst, d.rest)
	d.rest = d.rest[len(dst):]
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.err, d.rest = errCardShort, nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) int() int {
	v := d.uvarint()
	if v > math.MaxInt32 {
		d.err, d.rest = fmt.Errorf("card has the number %d where at most %d is possible", v, math.MaxInt32), nil
		return 0
	}
	return int(v)
}

func (d *decoder) string() string {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.err, d.rest = errCardShort, nil
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}
