// Package wire encodes and decodes small binary messages, between processes and in files.
//
// A message is written with the append functions of encoding/binary and those here. It is read with a [Reader], which
// never reads beyond the end and never allocates more than the message really has. Its first failure sticks, so that a
// decoder is a plain list of fields with one check at its end.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrShort means that a message ends before its last field does.
var ErrShort = errors.New("the message is cut short")

// AppendBytes appends data and, before it, its length as a varint. [Reader.Bytes] and [Reader.Text] read it.
func AppendBytes[T string | []byte](b []byte, data T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}

// AppendBool appends one byte, 1 or 0.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// Reader decodes a message, field by field. After a failure every field is zero, and Err is the first failure. Integers
// of fixed size are little-endian. A Reader is for one goroutine.
type Reader struct {
	rest []byte
	err  error
}

// NewReader reads a message, which must not change meanwhile.
func NewReader(message []byte) *Reader { return &Reader{rest: message} }

// Err is the first failure.
func (r *Reader) Err() error { return r.err }

// End is Err, or an error if the message has more bytes than were read.
func (r *Reader) End() error {
	if len(r.rest) > 0 {
		r.Fail(fmt.Errorf("the message has %d bytes too many", len(r.rest)))
	}
	return r.err
}

// Len is how many bytes are left; 0 after a failure.
func (r *Reader) Len() int { return len(r.rest) }

// Fail makes err the failure, unless there is one.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}

// Take reads n bytes, which still belong to the message; nil after a failure.
func (r *Reader) Take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.Fail(ErrShort)
		return nil
	}
	head := r.rest[:n:n]
	r.rest = r.rest[n:]
	return head
}

// Rest reads all remaining bytes.
func (r *Reader) Rest() []byte { return r.Take(len(r.rest)) }

// Fill reads as many bytes as dst has into it.
func (r *Reader) Fill(dst []byte) { copy(dst, r.Take(len(dst))) }

// word is Take for an integer: zeros after a failure.
func (r *Reader) word(n int) []byte {
	if b := r.Take(n); b != nil {
		return b
	}
	return make([]byte, 8)
}

// Byte reads one byte.
func (r *Reader) Byte() byte { return r.word(1)[0] }

// Bool reads what AppendBool wrote.
func (r *Reader) Bool() bool { return r.Byte() == 1 }

// Uint16 reads two bytes.
func (r *Reader) Uint16() uint16 { return binary.LittleEndian.Uint16(r.word(2)) }

// Uint32 reads four bytes.
func (r *Reader) Uint32() uint32 { return binary.LittleEndian.Uint32(r.word(4)) }

// Uint64 reads eight bytes.
func (r *Reader) Uint64() uint64 { return binary.LittleEndian.Uint64(r.word(8)) }

// Uvarint reads a varint without a sign.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.Fail(ErrShort)
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// Int reads a varint with a sign, of at most 32 bits.
func (r *Reader) Int() int {
	v, n := binary.Varint(r.rest)
	switch {
	case n <= 0:
		r.Fail(ErrShort)
		return 0
	case v != int64(int32(v)):
		r.Fail(fmt.Errorf("the message has the number %d where 32 bits are allowed", v))
		return 0
	}
	r.rest = r.rest[n:]
	return int(v)
}

// UpTo reads a varint from 0 to limit.
func (r *Reader) UpTo(limit int) int {
	v := r.Uvarint()
	if v > uint64(limit) {
		r.Fail(fmt.Errorf("the message has the number %d where at most %d is allowed", v, limit))
		return 0
	}
	return int(v)
}

// Count reads how many fields follow: at most limit, and at most as many as there are bytes left.
func (r *Reader) Count(limit int) int {
	n := r.UpTo(limit)
	if n > len(r.rest) {
		r.Fail(ErrShort)
		return 0
	}
	return n
}

// Bytes reads a length of at most limit and that many bytes, which still belong to the message.
func (r *Reader) Bytes(limit int) []byte { return r.Take(r.UpTo(limit)) }

// Text is Bytes as a string of its own.
func (r *Reader) Text(limit int) string { return string(r.Bytes(limit)) }
