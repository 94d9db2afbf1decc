package meet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/wire"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/tcp"
)

// tree is a rendezvous in two levels, for thousands of ranks: each id serves a slice of consecutive ranks. The first
// ranks of the slices then meet at an id derived from the first id, and pass the cards of all ranks back to their
// slices.
type tree struct {
	ids  []lifecycle.UniqueID
	wire door.Wire
	log  *slog.Logger
	open []rendezvous.Rendezvous
}

// Exchange implements rendezvous.Rendezvous.
func (t *tree) Exchange(ctx context.Context, key string, rank, size int, payload []byte) ([][]byte, error) {
	k := len(t.ids)
	slice := ((rank+1)*k - 1) / size // the last slice that begins at or before the rank
	first := slice * size / k
	n := (slice+1)*size/k - first
	inSlice := func(err error) error {
		return fmt.Errorf("among the ranks of unique id %d of %d: %w", slice, len(t.ids), err)
	}
	own := t.dial(t.ids[slice], first)
	mine, err := own.Exchange(ctx, key+"/slice", rank-first, n, payload)
	var everything [][]byte
	if rank == first { // also if its slice has failed, to tell the others
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		if err != nil {
			cancel(inSlice(err))
		}
		id, idErr := topID(t.ids[0])
		if idErr != nil {
			return nil, idErr
		}
		var topErr error
		everything, topErr = exchangeLarge(ctx, t.dial(id, 0), key+"/slices", slice, len(t.ids), join(mine))
		if err == nil && topErr != nil {
			return nil, fmt.Errorf("among the first ranks of each unique id: %w", topErr)
		}
	}
	if err != nil {
		return nil, inSlice(err)
	}
	back, err := exchangeLarge(ctx, own, key+"/all", rank-first, n, join(everything))
	if err != nil {
		return nil, inSlice(err)
	}
	slices, err := split(back[0])
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for _, s := range slices {
		part, err := split(s)
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
	}
	if len(all) != size {
		return nil, fmt.Errorf("the slices have %d ranks together, want %d: do all ranks pass the same ids?",
			len(all), size)
	}
	return all, nil
}

// Close implements rendezvous.Rendezvous.
func (t *tree) Close() error {
	var errs []error
	for _, r := range t.open {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

func (t *tree) dial(id lifecycle.UniqueID, server int) rendezvous.Rendezvous {
	r := tcp.Dial(id, tcp.Config{Wire: t.wire, Log: t.log, ServerRank: server, Serves: true})
	t.open = append(t.open, r)
	return r
}

// topID is the id at which the first ranks of the slices meet, in the process that made the first id.
func topID(first lifecycle.UniqueID) (lifecycle.UniqueID, error) {
	return lifecycle.UniqueIDFromSecret(append([]byte("carillon slices"), first.Secret()...), first.Address())
}

// exchangeLarge is Exchange for payloads of any length, in as many rounds as the longest payload needs. In each round a
// rank sends whether more follows, and one piece.
func exchangeLarge(
	ctx context.Context, at rendezvous.Rendezvous, key string, rank, size int, payload []byte,
) ([][]byte, error) {
	all := make([][]byte, size)
	for round, more := 0, true; more; round++ {
		n := min(len(payload), rendezvous.MaxPayload/2)
		piece := append(wire.AppendBool(nil, n < len(payload)), payload[:n]...)
		payload = payload[n:]
		pieces, err := at.Exchange(ctx, fmt.Sprintf("%s/%d", key, round), rank, size, piece)
		if err != nil {
			return nil, err
		}
		more = false
		for r, p := range pieces {
			in := wire.NewReader(p)
			more = in.Bool() || more
			all[r] = append(all[r], in.Rest()...)
		}
	}
	return all, nil
}

// join encodes several messages as one; split decodes them.
func join(messages [][]byte) []byte {
	var b []byte
	for _, m := range messages {
		b = wire.AppendBytes(b, m)
	}
	return b
}

func split(b []byte) ([][]byte, error) {
	r := wire.NewReader(b)
	var messages [][]byte
	for r.Len() > 0 {
		messages = append(messages, r.Bytes(len(b)))
	}
	return messages, r.Err()
}
