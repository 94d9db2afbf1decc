package meet

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/wire"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// Introduction is what the other ranks must know of one.
type Introduction struct {
	Meets   string // where meetings can be held in its process, host:port; empty if all ranks are of one Point
	Contact string // where else its process can be reached; empty for nowhere
	Card    []byte // how it is connected
	Device  string // the kind of its engine for device memory; empty for none

	// Run is the run of the job that its process is part of, if it knows that: rank 0 of a world does.
	Run lifecycle.Run
}

// Introduce tells all ranks this one's identity, and returns theirs, by rank.
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
			return nil, fmt.Errorf("what rank %d sent of itself: %w", r, err)
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
