package mesh

import "encoding/binary"

// reader takes a message apart. It never reads beyond the end: bad is set instead, and everything is zero from then on.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	head := r.b[:n]
	r.b = r.b[n:]
	return head
}

func (r *reader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.take(-1)
		return 0
	}
	r.take(n)
	return v
}

// count reads a number from 0 to limit.
func (r *reader) count(limit int) int {
	v := r.uvarint()
	if v > uint64(limit) {
		r.take(-1)
		return 0
	}
	return int(v)
}

// integer reads a number of at most 32 bits, with its sign.
func (r *reader) integer() int {
	v, n := binary.Varint(r.b)
	if n <= 0 || v != int64(int32(v)) {
		r.take(-1)
		return 0
	}
	r.take(n)
	return int(v)
}

// text reads a text of at most limit bytes.
func (r *reader) text(limit int) string {
	n := int(r.u8())
	if n > limit {
		r.take(-1)
	}
	return string(r.take(n))
}

// bytes reads at most limit bytes, which stay the message's.
func (r *reader) bytes(limit int) []byte { return r.take(r.count(limit)) }

// appendText writes a text of at most 255 bytes.
func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), 255)]
	return append(append(b, byte(len(s))), s...)
}

func appendBytes(b, data []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}
