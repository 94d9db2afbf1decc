package ccl

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/wire"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	rtcp "github.com/carillon-rt/carillon/runtime/rendezvous/tcp"
)

// InitRankScalable is InitRank with several unique ids, made by different ranks, whose processes share the work of the
// rendezvous: for communicators of thousands of ranks. All ranks pass the same ids in the same order, at most one for
// each rank. The first one names the communicator.
func (rt *Runtime) InitRankScalable(ctx context.Context, ids []UniqueID, nranks, rank int, opts ...Option) (*Comm, error) {
	if rt.absent() {
		return nil, errNoRuntime(lifecycle.CallInitRankScalable)
	}
	info := lifecycle.Info{Call: lifecycle.CallInitRankScalable, Rank: rank, Size: nranks, Site: callSite()}
	if err := checkIDs(ids, nranks, rank); err != nil {
		return nil, rt.refused(ctx, err, info, opts)
	}
	return rt.makeRoot(ctx, ids[0], info, newTree(ids, rt.rendezvousConfig()), opts)
}

// checkIDs checks the arguments of InitRankScalable.
func checkIDs(ids []UniqueID, nranks, rank int) *UsageError {
	bad := func(format string, args ...any) *UsageError {
		return &UsageError{
			Call: lifecycle.CallInitRankScalable, Code: lifecycle.CodeInvalidArgument, Rank: rank, Detail: fmt.Sprintf(format, args...),
		}
	}
	if len(ids) == 0 || len(ids) > max(nranks, 1) {
		return bad("there are %d unique ids: with nranks %d, 1 to %d are allowed", len(ids), nranks, max(nranks, 1))
	}
	seen := map[UniqueID]int{}
	for i, id := range ids {
		if err := checkRank(lifecycle.CallInitRankScalable, id, nranks, rank); err != nil {
			return err
		}
		if j, twice := seen[id]; twice {
			return bad("unique ids %d and %d are the same: each must be made by a NewUniqueID of its own", j, i)
		}
		seen[id] = i
	}
	return nil
}

// tree is a rendezvous in two levels: the ranks are cut into as many slices of neighbours as there are ids. Each slice
// meets at its own; the first ranks of the slices meet at an id that follows from the first, and carry what they learn
// there back to their slices.
type tree struct {
	ids    []UniqueID
	config rtcp.Config
	open   []rendezvous.Rendezvous
}

func newTree(ids []UniqueID, config rtcp.Config) *tree { return &tree{ids: ids, config: config} }

// Exchange implements rendezvous.Rendezvous.
func (t *tree) Exchange(ctx context.Context, key string, rank, size int, payload []byte) ([][]byte, error) {
	slice := t.sliceOf(rank, size)
	first, n := t.bounds(slice, size)
	own := t.dial(t.ids[slice], first)
	mine, err := own.Exchange(ctx, key+"/slice", rank-first, n, payload)
	if err != nil {
		return nil, inSlice(err, slice, len(t.ids))
	}
	if len(t.ids) == 1 {
		return mine, nil
	}
	var everything [][]byte
	if rank == first {
		id, err := topID(t.ids[0])
		if err != nil {
			return nil, err
		}
		if everything, err = exchangeLarge(ctx, t.dial(id, 0), key+"/slices", slice, len(t.ids), join(mine)); err != nil {
			return nil, fmt.Errorf("among the first ranks of each unique id: %w", err)
		}
	}
	back, err := exchangeLarge(ctx, own, key+"/all", rank-first, n, join(everything))
	if err != nil {
		return nil, inSlice(err, slice, len(t.ids))
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

func (t *tree) dial(id UniqueID, server int) rendezvous.Rendezvous {
	config := t.config
	config.ServerRank = server
	r := rtcp.Dial(id, config)
	t.open = append(t.open, r)
	return r
}

// topID is the id at which the first ranks of the slices meet, in the process that made the first id.
func topID(first UniqueID) (UniqueID, error) {
	return lifecycle.UniqueIDFromSecret(append([]byte("carillon slices"), first.Secret()...), first.Address())
}

// sliceOf is the slice that a rank is in; bounds is the first rank of a slice, and how many it has.
func (t *tree) sliceOf(rank, size int) int {
	for s := range t.ids {
		if first, n := t.bounds(s, size); rank < first+n {
			return s
		}
	}
	return len(t.ids) - 1
}

func (t *tree) bounds(slice, size int) (first, n int) {
	k := len(t.ids)
	first = slice * size / k
	return first, (slice+1)*size/k - first
}

func inSlice(err error, slice, of int) error {
	if of == 1 {
		return err
	}
	return fmt.Errorf("among the ranks of unique id %d of %d: %w", slice, of, err)
}

// exchangeLarge is Exchange for payloads of any length: they are cut into as many pieces as the longest of them needs.
func exchangeLarge(ctx context.Context, at rendezvous.Rendezvous, key string, rank, size int, payload []byte) ([][]byte, error) {
	const piece = rendezvous.MaxPayload / 2
	lengths, err := at.Exchange(ctx, key+"/length", rank, size, binary.LittleEndian.AppendUint32(nil, uint32(len(payload))))
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
	all := make([]bytes.Buffer, size)
	for i := 0; i*piece < longest; i++ {
		part := payload[min(i*piece, len(payload)):min((i+1)*piece, len(payload))]
		parts, err := at.Exchange(ctx, fmt.Sprintf("%s/%d", key, i), rank, size, part)
		if err != nil {
			return nil, err
		}
		for r, p := range parts {
			all[r].Write(p)
		}
	}
	out := make([][]byte, size)
	for r := range all {
		out[r] = all[r].Bytes()
	}
	return out, nil
}

// join puts messages into one, each behind its length; split takes them apart again.
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
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("the message about the other ranks: %w", err)
	}
	return messages, nil
}
