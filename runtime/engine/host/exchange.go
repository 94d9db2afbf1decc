package host

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
)

// maxPayload bounds what a rank may contribute to an Exchange.
const maxPayload = 1 << 24

// Exchange gives every rank all ranks' payloads, by rank, in memory of the caller's. They may have different lengths,
// up to 16 MiB. It is the collective with which call, a Split or a Grow, finds out what all ranks want; ranks that
// exchange for different calls don't match. seq and the errors are Run's.
func (e *Engine) Exchange(ctx context.Context, call lifecycle.Call, seq uint64, payload []byte) ([][]byte, error) {
	if s := e.stopped.Load(); s != nil {
		return nil, s.err
	}
	if len(payload) > maxPayload {
		return nil, e.refuse(call, "payload has %d bytes, %d are allowed", len(payload), maxPayload)
	}
	lengths, err := e.allGather(ctx, call, seq, binary.LittleEndian.AppendUint64(nil, uint64(len(payload))))
	if err != nil {
		return nil, err
	}
	var most uint64
	for r := range e.size {
		most = max(most, binary.LittleEndian.Uint64(lengths[8*r:]))
	}
	if most > maxPayload {
		return nil, e.fail(&lifecycle.SystemError{
			Code: lifecycle.CodeInternal, Op: "exchange", Err: errors.New("a peer announces too much"),
		})
	}
	block := make([]byte, most)
	copy(block, payload)
	blocks, err := e.allGather(ctx, call, seq, block)
	if err != nil {
		return nil, err
	}
	storeRelease(&e.passed, seq)
	all := make([][]byte, e.size)
	for r := range all {
		start, n := r*len(block), int(binary.LittleEndian.Uint64(lengths[8*r:]))
		all[r] = blocks[start : start+n : start+n]
	}
	return all, nil
}

// allGather is an AllGather of bytes that says to the other ranks that it is part of call.
func (e *Engine) allGather(ctx context.Context, call lifecycle.Call, seq uint64, block []byte) ([]byte, error) {
	op := Op{
		Call: lifecycle.CallAllGather, Count: len(block), DataType: kernels.Uint8, Peer: -1,
		Send: block, Recv: make([]byte, e.size*len(block)),
	}
	p := e.Plan(&op)
	e.begin(ctx, call, seq, seq)
	said := op
	said.Call = call
	if err := e.collective(&op, p, makeHeader(kindCollective, &said, seq, p.algorithm)); err != nil {
		return nil, e.fail(err)
	}
	e.end()
	return op.Recv, nil
}
