package door

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
)

// Wire says how a connection is protected after the handshake.
type Wire uint8

// The numbers are part of the protocol. A higher one protects more.
const (
	Plain        Wire = iota // not at all
	Authenticate             // in the clear; a change on the way is detected and ends the connection
	Encrypt                  // authenticated, and unreadable without the secret
)

var wireNames = []string{"plain", "authenticate", "encrypt"}

func (w Wire) String() string {
	if int(w) < len(wireNames) {
		return wireNames[w]
	}
	return fmt.Sprintf("wire %d", uint8(w))
}

// ParseWire is the inverse of String.
func ParseWire(text string) (Wire, error) {
	if i := slices.Index(wireNames, strings.ToLower(text)); i >= 0 {
		return Wire(i), nil
	}
	return Plain, errors.New("want plain, authenticate or encrypt")
}

// ErrForged ends a Sealed connection on which the received data differs from the sent data. None of it is passed on.
var ErrForged = errors.New("data was changed on the way: somebody on the network changes, repeats or drops it")

const (
	headSize   = 4         // of a record: the length of its payload
	tagSize    = 16        // of a record: its authentication tag
	maxPayload = 16 << 10  // of a record; a larger one is forged
	minBuffer  = 4 << 10   // for received data
	maxBuffer  = 128 << 10 // limit of its growth, when that much arrives at once
	keyRecords = 1 << 20   // records sealed with one key: AES-GCM is safe for some millions of this size
	keySize    = 32
)

// agreed is the result of a handshake.
type agreed struct {
	wire       Wire
	secret     []byte
	transcript []byte // messages of both sides, including a nonce of each
}

// over returns conn with the agreed protection, for one of the sides.
func (a agreed) over(conn net.Conn, dialer bool) net.Conn {
	if a.wire == Plain {
		return conn
	}
	in, out := a.direction("dialer"), a.direction("door")
	if dialer {
		in, out = out, in
	}
	return &Sealed{Conn: conn, in: in, out: out}
}

func (a agreed) direction(from string) *direction {
	info := "carillon " + a.wire.String() + " from the " + from
	return &direction{key: must(hkdf.Key(sha256.New, a.secret, a.transcript, info, keySize)), hide: a.wire == Encrypt}
}

// direction is one direction of a connection: records, each sealed with its number.
type direction struct {
	hide  bool // the payload is encrypted
	key   []byte
	aead  cipher.AEAD // cipher for key; nil until first used
	count uint64      // records so far
	nonce [12]byte    // ends with the number of the record
}

// next prepares for another record. Each key is derived from the previous one, which can't be derived from it.
func (d *direction) next() {
	if d.count > 0 && d.count%keyRecords == 0 {
		d.key, d.aead = must(hkdf.Expand(sha256.New, d.key, "carillon next key", keySize)), nil
	}
	if d.aead == nil {
		d.aead = must(cipher.NewGCM(must(aes.NewCipher(d.key))))
	}
	binary.BigEndian.PutUint64(d.nonce[4:], d.count)
	d.count++
}

// seal appends a record with a payload of at most maxPayload bytes.
func (d *direction) seal(to, payload []byte) []byte {
	d.next()
	head := len(to)
	to = binary.BigEndian.AppendUint32(to, uint32(len(payload)))
	if d.hide {
		return d.aead.Seal(to, d.nonce[:], payload, to[head:])
	}
	to = append(to, payload...)
	return d.aead.Seal(to, d.nonce[:], nil, to[head:])
}

// open returns the payload of a record, in the record's memory.
func (d *direction) open(record []byte) (payload []byte, err error) {
	d.next()
	visible := headSize
	if !d.hide {
		visible = len(record) - tagSize
	}
	sealed := record[visible:]
	opened, err := d.aead.Open(sealed[:0], d.nonce[:], sealed, record[:visible])
	if err != nil {
		return nil, ErrForged
	}
	return record[headSize : visible+len(opened)], nil
}

// Sealed is a connection whose ends share the keys of a handshake. Data is written in records:
//
//	length   uint32, big-endian: bytes of the payload, at most 16 KiB
//	payload  encrypted, or in the clear
//	tag      [16], of length and payload
//
// with AES-256-GCM. The nonce is the record's number, so a record is valid only at its position. Reading returns
// io.ErrUnexpectedEOF if the stream ends within a record, and ErrForged, from then on, if a record was changed. A
// stream that was cut between two records looks complete: the data must show whether it is.
//
// One goroutine may read, and several may write.
type Sealed struct {
	net.Conn

	in       *direction
	buf      []byte // buf[from:to] has arrived and was not opened yet
	from, to int
	full     bool   // the last read filled buf
	opened   []byte // opened data not read yet, in buf
	err      error  // ErrForged, once it occurred

	mu     sync.Mutex
	out    *direction
	record []byte
	broken error // why a record was not completely written; nothing is written after it
}

// Read implements net.Conn. It returns data of at most one record.
func (s *Sealed) Read(p []byte) (int, error) {
	if err := s.Await(); err != nil {
		return 0, err
	}
	n := copy(p, s.opened)
	s.opened = s.opened[n:]
	return n, nil
}

// Await blocks until there is data to Read, so that Read doesn't block.
func (s *Sealed) Await() error {
	for len(s.opened) == 0 {
		if s.err != nil {
			return s.err
		}
		if err := s.next(); err != nil {
			return err
		}
	}
	return nil
}

// next reads and opens a record.
func (s *Sealed) next() error {
	if err := s.fill(headSize); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(s.buf[s.from:])
	if size > maxPayload {
		s.err = ErrForged
		return s.err
	}
	whole := headSize + int(size) + tagSize
	if err := s.fill(whole); err != nil {
		return err
	}
	record := s.buf[s.from : s.from+whole]
	s.from += whole
	s.opened, s.err = s.in.open(record)
	return s.err
}

// fill reads until need bytes have arrived.
func (s *Sealed) fill(need int) error {
	for s.to-s.from < need {
		s.from, s.to = 0, copy(s.buf, s.buf[s.from:s.to])
		if s.full && len(s.buf) < maxBuffer || len(s.buf) < need {
			larger := make([]byte, max(need, minBuffer, min(2*len(s.buf), maxBuffer)))
			copy(larger, s.buf[:s.to])
			s.buf = larger
		}
		n, err := s.Conn.Read(s.buf[s.to:])
		s.to += n
		s.full = s.to == len(s.buf)
		if n == 0 && errors.Is(err, io.EOF) && s.to > 0 {
			err = io.ErrUnexpectedEOF
		}
		if n == 0 && err != nil {
			return err
		}
	}
	return nil
}

// Write implements net.Conn.
func (s *Sealed) Write(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n < len(p) && s.broken == nil {
		payload := p[n:min(len(p), n+maxPayload)]
		s.record = s.out.seal(s.record[:0], payload)
		if _, s.broken = s.Conn.Write(s.record); s.broken == nil {
			n += len(payload)
		}
	}
	return n, s.broken
}

// Seal appends the records of p to a buffer, for a caller that writes them to Conn itself, in this order, instead of
// calling Write. See SealedSize.
func (s *Sealed) Seal(to, p []byte) []byte {
	for len(p) > 0 {
		n := min(len(p), maxPayload)
		to = s.out.seal(to, p[:n])
		p = p[n:]
	}
	return to
}

// SealedSize returns the size of Seal's records for n bytes.
func SealedSize(n int) int { return n + (n+maxPayload-1)/maxPayload*(headSize+tagSize) }

// CloseWrite is the function CloseWrite, for the Conn below.
func (s *Sealed) CloseWrite() error { return CloseWrite(s.Conn) }

// CloseWrite shuts down the writing side of a connection, or closes one that has no sides.
func CloseWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return conn.Close()
}

// must is for functions that fail only with keys of a wrong size.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
