package meet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/tcp"
)

// tree is a rendezvous in two levels, for thousands of ranks: they are cut into as many slices of neighbours as there
// are ids. Each slice meets at its own; the first ranks of the slices meet at an id that follows from the first, and
// carry what they learn there back to their slices.
type tree struct {
	ids    []lifecycle.UniqueID
	config tcp.Config
	open   []rendezvous.Rendezvous
}

// Exchange implements rendezvous.Rendezvous.
func (t *tree) Exchange(ctx context.Context, key string, rank, size int, payload []byte) ([][]byte, error) {
	slice := 0
	first, n := t.bounds(slice, size)
	for rank >= first+n && slice < len(t.ids)-1 {
		slice++
		first, n = t.bounds(slice, size)
	}
	inSlice := func(err error) error {
		return fmt.Errorf("among the ranks of unique id %d of %d: %w", slice, len(t.ids), err)
	}
	own := t.dial(t.ids[slice], first)
	mine, err := own.Exchange(ctx, key+"/slice", rank-first, n, payload)
	if err != nil {
		return nil, inSlice(err)
	}
	var everything [][]byte
	if rank == first {
		id, err := topID(t.ids[0])
		if err != nil {
			return nil, err
		}
		everything, err = exchangeLarge(ctx, t.dial(id, 0), key+"/slices", slice, len(t.ids), join(mine))
		if err != nil {
			return nil, fmt.Errorf("among the first ranks of each unique id: %w", err)
		}
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
		return nil, fmt.Errorf("the slices have %d ranks together, want %d: do all ranks pass the same ids?", len(all), size)
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
	config := t.config
	config.ServerRank = server
	r := tcp.Dial(id, config)
	t.open = append(t.open, r)
	return r
}

// topID is the id at which the first ranks of the slices meet, in the process that made the first id.
func topID(first lifecycle.UniqueID) (lifecycle.UniqueID, error) {
	return lifecycle.UniqueIDFromSecret(append([]byte("carillon slices"), first.Secret()...), first.Address())
}

// bounds are the first rank of a slice, and how many it has.
func (t *tree) bounds(slice, size int) (first, n int) {
	k := len(t.ids)
	first = slice * size / k
	return first, (slice+1)*size/k - first
}

// exchangeLarge is Exchange for payloads of any length: they are cut into as many pieces as the longest of them needs.
func exchangeLarge(
	ctx context.Context, at rendezvous.Rendezvous, key string, rank, size int, payload []byte,
) ([][]byte, error) {
	const piece = rendezvous.MaxPayload / 2
	length := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
	lengths, err := at.Exchange(ctx, key+"/length", rank, size, length)
	if err != nil {
		return nil, err
	}
	longest := 0
	for r, l := range lengths {
		if len(l) != 4 {
			return nil, fmt.Errorf("the length that rank %d sent has %d bytes, want 4", r, len(l))
		}
		longest = max(longest, int(binary.LittleEndian.Uint32(l)))
	}
	all := make([][]byte, size)
	for i := 0; i*piece < longest; i++ {
		part := payload[min(i*piece, len(payload)):min((i+1)*piece, len(payload))]
		parts, err := at.Exchange(ctx, fmt.Sprintf("%s/%d", key, i), rank, size, part)
		if err != nil {
			return nil, err
		}
		for r, p := range parts {
			all[r] = append(all[r], p...)
		}
	}
	return all, nil
}
