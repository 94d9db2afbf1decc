package fabric

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/wire"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/proxy"
	"github.com/carillon-rt/carillon/runtime/transport/shm"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// cardVersion changes whenever ranks with different versions could not connect.
const cardVersion = 6

// Bounds on the texts of a card, in bytes.
const (
	maxHostName = 64
	maxAddress  = 64
)

// card is what a rank tells all others before they connect: what it is, where, and how to reach it.
type card struct {
	comm    lifecycle.CommID
	fabric  [16]byte // a random name of the Fabric
	hostID  string
	host    string // the host's name, for humans
	process process.ID
	inbox   shm.Location // zero if shared memory is switched off
	tcp     string       // address and port
	wire    door.Wire    // how its connections are protected
	proxy   proxy.Card
	pxn     bool      // its proxy may send for other ranks of its node, if it shares memory
	gate    door.Room // the rank's gate at the listener; names the Port if there is no listener
}

func (c *card) encode() []byte {
	b := append(make([]byte, 0, 256), cardVersion)
	b = append(b, c.comm[:]...)
	b = append(b, c.fabric[:]...)
	b = wire.AppendBytes(b, c.hostID)
	b = wire.AppendBytes(b, c.host)
	b = c.process.Append(b)
	b = binary.AppendUvarint(b, uint64(c.inbox.FD))
	b = binary.AppendUvarint(b, uint64(c.inbox.Slots))
	b = append(b, c.inbox.Token[:]...)
	b = append(wire.AppendBytes(b, c.tcp), byte(c.wire))
	b = binary.LittleEndian.AppendUint64(b, c.proxy.Generation)
	b = binary.AppendUvarint(b, uint64(c.proxy.FD+1))
	b = append(b, c.proxy.Token[:]...)
	b = binary.AppendUvarint(b, uint64(c.proxy.UID))
	return append(wire.AppendBool(b, c.pxn), c.gate[:]...)
}

func decodeCard(b []byte) (*card, error) {
	r := wire.NewReader(b)
	if v := r.Byte(); r.Err() == nil && v != cardVersion {
		return nil, fmt.Errorf("card has version %d, this build speaks %d: all ranks must run one build",
			v, cardVersion)
	}
	c := new(card)
	r.Fill(c.comm[:])
	r.Fill(c.fabric[:])
	c.hostID = r.Text(MaxHostID)
	c.host = r.Text(maxHostName)
	c.process = process.Read(r)
	c.inbox.FD = r.UpTo(math.MaxInt32)
	c.inbox.Slots = r.UpTo(math.MaxInt32)
	r.Fill(c.inbox.Token[:])
	c.tcp = r.Text(maxAddress)
	c.wire = door.Wire(r.Byte())
	c.proxy.Generation = r.Uint64()
	c.proxy.FD = r.UpTo(math.MaxInt32) - 1
	r.Fill(c.proxy.Token[:])
	c.proxy.UID = r.UpTo(math.MaxUint32)
	c.pxn = r.Bool()
	r.Fill(c.gate[:])
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("card: %w", err)
	}
	return c, nil
}
