package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
)

// Signature is what a rank tells another about the call that it makes. The same collective call has equal signatures,
// and a send meets the receive whose signature agrees in what Meets compares.
type Signature struct {
	what  uint64 // Magic, call, data type, reduction, algorithm: see Sign
	seq   uint64 // number of the collective on the communicator, or of the message from one rank to the other
	count uint64
	// root is, of a collective, the root, or 0; of a send or receive, the peer, and in the upper half of a receive's,
	// how many sends to that peer were called together with it.
	root uint64
}

const (
	// SignatureSize is the length of a Signature as it is sent, in bytes.
	SignatureSize = 32
	// Magic is what a Signature begins with as it is sent, little-endian. It is a format version, too: ranks of another
	// one don't have it.
	Magic = 0xCA13
)

// Sign makes the signature of a collective, which is called call, or of a Send or Recv.
func Sign(call lifecycle.Call, op *Op, seq uint64, a algo.Algorithm) Signature {
	s := Signature{
		what: Magic | uint64(call)<<16 | uint64(op.DataType)<<24 | uint64(a)<<40,
		seq:  seq, count: uint64(op.Count), root: uint64(max(op.Peer, 0)),
	}
	if op.Call.Reduces() {
		s.what |= uint64(op.Reduction) << 32
	}
	return s
}

// Beside makes a receive's signature say how many sends to the same peer were called together with it.
func (s Signature) Beside(sends int) Signature {
	s.root |= uint64(sends) << 32
	return s
}

// Sends is what Beside said.
func (s *Signature) Sends() int { return int(s.root >> 32) }

// Valid says whether it is a signature at all.
func (s *Signature) Valid() bool { return uint16(s.what) == Magic }

// Call is what it is the signature of.
func (s *Signature) Call() lifecycle.Call { return lifecycle.Call(s.what >> 16) }

// IsMessage says whether it is of a Send or Recv.
func (s *Signature) IsMessage() bool {
	return s.Valid() && (s.Call() == lifecycle.CallSend || s.Call() == lifecycle.CallRecv)
}

// Meets says whether a send, and a receive of it, have what they must have in common: what messageFields lists.
func (s *Signature) Meets(peers *Signature) bool {
	const dataType = 0xFF << 24
	return s.what&dataType == peers.what&dataType && s.count == peers.count && s.seq == peers.seq
}

// Put writes the signature as it is sent, in SignatureSize bytes.
func (s *Signature) Put(b []byte) {
	_ = b[SignatureSize-1]
	binary.LittleEndian.PutUint64(b[0:], s.what)
	binary.LittleEndian.PutUint64(b[8:], s.seq)
	binary.LittleEndian.PutUint64(b[16:], s.count)
	binary.LittleEndian.PutUint64(b[24:], s.root)
}

// GetSignature reads what Put wrote.
func GetSignature(b []byte) Signature {
	_ = b[SignatureSize-1]
	return Signature{
		what:  binary.LittleEndian.Uint64(b[0:]),
		seq:   binary.LittleEndian.Uint64(b[8:]),
		count: binary.LittleEndian.Uint64(b[16:]),
		root:  binary.LittleEndian.Uint64(b[24:]),
	}
}

// field is one thing that signatures can differ in.
type field struct {
	name string
	text func(s *Signature) string
}

// fields are all of them, the one that explains most first: what follows from another difference comes after it.
func fields() []field {
	return []field{
		{"call", (*Signature).callText},
		{"data type", func(s *Signature) string { return kernels.DataType(s.what >> 24).String() }},
		{"count", func(s *Signature) string { return fmt.Sprint(s.count) }},
		{"root", func(s *Signature) string { return fmt.Sprint(s.root) }},
		{"reduction", func(s *Signature) string { return kernels.Reduction(s.what >> 32).String() }},
		{"algorithm", func(s *Signature) string { return algo.Algorithm(s.what >> 40).String() }},
		{"number of the operation", func(s *Signature) string { return fmt.Sprint(s.seq) }},
	}
}

// messageFields are those that a send and its receive must have in common.
func messageFields() []field {
	all := fields()
	return []field{all[1], all[2], all[6]}
}

func (s *Signature) callText() string {
	switch {
	case !s.Valid():
		return "something that is no operation of this version of Carillon"
	case s.Call() == lifecycle.CallSend:
		return fmt.Sprintf("send to rank %d", uint32(s.root))
	case s.Call() == lifecycle.CallRecv:
		return fmt.Sprintf("recv from rank %d", uint32(s.root))
	}
	return s.Call().String()
}
