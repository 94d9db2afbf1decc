package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
)

// Signature describes to another rank the call that a rank makes. Ranks that make the same collective call have equal
// signatures. A send matches a receive if their signatures agree in the fields that Meets compares.
type Signature struct {
	what  uint64 // Magic, call, data type, reduction, algorithm: see Sign
	seq   uint64 // number of the collective on the communicator, or of the message from one rank to the other
	count uint64
	// root is the root of a collective, or 0. For a send or receive it is the peer, and the upper half of a receive's
	// root is the number of sends to that peer in the same group.
	root uint64
}

const (
	// SignatureSize is the encoded length of a Signature, in bytes.
	SignatureSize = 32
	// Magic begins an encoded Signature, little-endian. It also serves as a format version: ranks with another format
	// have another value.
	Magic = 0xCA13
)

// Sign makes the signature of a collective, which the ranks know as call, or of a Send or Recv.
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

// Beside adds to a receive's signature the number of sends to the same peer in the same group.
func (s Signature) Beside(sends int) Signature {
	s.root |= uint64(sends) << 32
	return s
}

// Sends returns the number that Beside added.
func (s *Signature) Sends() int { return int(s.root >> 32) }

// Valid reports whether this is a signature at all.
func (s *Signature) Valid() bool { return uint16(s.what) == Magic }

// Call returns the call that was signed.
func (s *Signature) Call() lifecycle.Call { return lifecycle.Call(s.what >> 16) }

// IsMessage reports whether the signature is of a Send or Recv.
func (s *Signature) IsMessage() bool {
	return s.Valid() && (s.Call() == lifecycle.CallSend || s.Call() == lifecycle.CallRecv)
}

// Meets reports whether a send and a receive agree in the fields that messageFields lists.
func (s *Signature) Meets(peers *Signature) bool {
	const dataType = 0xFF << 24
	return s.what&dataType == peers.what&dataType && s.count == peers.count && s.seq == peers.seq
}

// Put encodes the signature into the first SignatureSize bytes of b.
func (s *Signature) Put(b []byte) {
	_ = b[SignatureSize-1]
	binary.LittleEndian.PutUint64(b[0:], s.what)
	binary.LittleEndian.PutUint64(b[8:], s.seq)
	binary.LittleEndian.PutUint64(b[16:], s.count)
	binary.LittleEndian.PutUint64(b[24:], s.root)
}

// GetSignature decodes what Put wrote.
func GetSignature(b []byte) Signature {
	_ = b[SignatureSize-1]
	return Signature{
		what:  binary.LittleEndian.Uint64(b[0:]),
		seq:   binary.LittleEndian.Uint64(b[8:]),
		count: binary.LittleEndian.Uint64(b[16:]),
		root:  binary.LittleEndian.Uint64(b[24:]),
	}
}

// field is a part in which signatures can differ.
type field struct {
	name string
	text func(s *Signature) string
}

// fields lists all fields, most explanatory first: a difference that follows from another one comes after it.
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

// messageFields are the fields in which a send and its receive must agree.
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
