package meet

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/wire"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// Introduction is a rank's information about itself for the other ranks.
type Introduction struct {
	Meets   string // host:port at which its process serves rendezvous; empty if all ranks are of one Point
	Contact string // another address of its process; empty for none
	Card    []byte // how its transports are reached
	Device  string // the kind of its engine for device memory; empty for none

	// Run is the job's run, if the rank knows it: rank 0 of a world does.
	Run lifecycle.Run
}

// Introduce exchanges introductions with all ranks, and returns them by rank.
func Introduce(
	ctx context.Context, at rendezvous.Rendezvous, rank, size int, mine *Introduction,
) ([]Introduction, error) {
	payloads, err := at.Exchange(ctx, "init", rank, size, mine.encode())
	if err != nil {
		return nil, err
	}
	ranks := make([]Introduction, len(payloads))
	for r, p := range payloads {
		if err := ranks[r].decode(p); err != nil {
			return nil, fmt.Errorf("the introduction of rank %d: %w", r, err)
		}
	}
	return ranks, nil
}

func (i *Introduction) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(i.Run))
	b = wire.AppendBytes(wire.AppendBytes(b, i.Meets), i.Contact)
	return wire.AppendBytes(wire.AppendBytes(b, i.Card), i.Device)
}

func (i *Introduction) decode(b []byte) error {
	r := wire.NewReader(b)
	i.Run = lifecycle.Run(r.Uint64())
	i.Meets, i.Contact, i.Card, i.Device = r.Text(len(b)), r.Text(len(b)), r.Bytes(len(b)), r.Text(len(b))
	return r.End()
}
