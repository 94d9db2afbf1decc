package host

import (
	"encoding/binary"
	"fmt"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
)

// header is what a rank tells another about the call that it makes. The same collective call has equal headers.
type header struct {
	what  uint64 // magic, kind, call, data type, reduction, algorithm: see makeHeader
	seq   uint64 // number of the collective on the communicator, or of the message from one rank to the other
	count uint64
	// root is, of a collective, the root, or 0; of a send or receive, the peer, and in the upper half of a receive's,
	// how many sends to that peer were called together with it.
	root uint64
}

const (
	headerSize = 32
	magic      = 0xCA12 // also a format version: ranks of another one don't have it
)

// kind is what follows a header.
type kind uint8

const (
	kindCollective kind = iota + 1
	kindSend
	kindRecv
	kindDigest
)

func makeHeader(k kind, op *Op, seq uint64, a algo.Algorithm) header {
	h := header{
		what: magic | uint64(k)<<16 | uint64(op.Call)<<24 | uint64(op.DataType)<<32 | uint64(a)<<48,
		seq:  seq, count: uint64(op.Count),
	}
	if op.Call.Reduces() {
		h.what |= uint64(op.Reduction) << 40
	}
	if op.Call.IsRooted() {
		h.root = uint64(op.Peer)
	}
	return h
}

func (h *header) valid() bool          { return uint16(h.what) == magic }
func (h *header) kind() kind           { return kind(h.what >> 16) }
func (h *header) call() lifecycle.Call { return lifecycle.Call(h.what >> 24) }

func (h *header) put(b []byte) {
	_ = b[headerSize-1]
	binary.LittleEndian.PutUint64(b[0:], h.what)
	binary.LittleEndian.PutUint64(b[8:], h.seq)
	binary.LittleEndian.PutUint64(b[16:], h.count)
	binary.LittleEndian.PutUint64(b[24:], h.root)
}

func getHeader(b []byte) header {
	_ = b[headerSize-1]
	return header{
		what:  binary.LittleEndian.Uint64(b[0:]),
		seq:   binary.LittleEndian.Uint64(b[8:]),
		count: binary.LittleEndian.Uint64(b[16:]),
		root:  binary.LittleEndian.Uint64(b[24:]),
	}
}

// field is one thing that headers can differ in.
type field struct {
	name string
	text func(h *header) string
}

// fields are all of them, the one that explains most first: what follows from another difference comes after it.
func fields() []field {
	return []field{
		{"call", (*header).callText},
		{"data type", func(h *header) string { return kernels.DataType(h.what >> 32).String() }},
		{"count", func(h *header) string { return fmt.Sprint(h.count) }},
		{"root", func(h *header) string { return fmt.Sprint(h.root) }},
		{"reduction", func(h *header) string { return kernels.Reduction(h.what >> 40).String() }},
		{"algorithm", func(h *header) string { return algo.Algorithm(h.what >> 48).String() }},
		{"number of the operation", func(h *header) string { return fmt.Sprint(h.seq) }},
	}
}

// messageFields are those that a send and its receive must have in common.
func messageFields() []field {
	all := fields()
	return []field{all[1], all[2], all[6]}
}

func differs(a, b *header) field {
	all := fields()
	for _, f := range all {
		if f.text(a) != f.text(b) {
			return f
		}
	}
	return all[0]
}

func (h *header) callText() string {
	if !h.valid() {
		return "something that is no operation of this version of Carillon"
	}
	switch h.kind() {
	case kindSend:
		return fmt.Sprintf("send to rank %d", uint32(h.root))
	case kindRecv:
		return fmt.Sprintf("recv from rank %d", uint32(h.root))
	case kindCollective, kindDigest:
	}
	return h.call().String()
}
