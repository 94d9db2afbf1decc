package mesh

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// SecretSize is the size of the job's secret, in bytes.
const SecretSize = 32

const (
	tagSize      = 8
	nonceSize    = 12
	sealOverhead = nonceSize + 16 // the nonce and the authentication tag
	// maxRecord bounds a stream's record, and so the memory that a stranger can make a member use.
	maxRecord = 64 << 10
)

var (
	errStranger = errors.New("mesh: not of this job")
	errReplay   = errors.New("mesh: a replay")
	errTooLarge = errors.New("mesh: too large")
)

// seal encrypts and authenticates everything that the members of a job send each other, so that memberlist sees only
// authentic bytes: AES-256-GCM with a key derived from the job's secret and name.
//
//	packet   tag 8 | nonce 12 | encrypted
//	stream   tag 8 | records, in both directions: length u32 | nonce 12 | encrypted
//
// The tag is derived from the same, and sent in the clear, to reject most strangers at once. The additional data of a
// record are the nonce of the stream's first record, the direction and the record's number.
type seal struct {
	aead cipher.AEAD
	tag  [tagSize]byte

	mu sync.Mutex
	// seen are recent nonces. Older replays are stopped by their content: incarnations, instances, times, question ids.
	seen recent[[nonceSize]byte]
}

func newSeal(secret []byte, job string) (*seal, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "carillon mesh key "+job, 32)
	if err != nil {
		return nil, fmt.Errorf("mesh: derive the key: %w", err)
	}
	tag, err := hkdf.Key(sha256.New, secret, nil, "carillon mesh tag "+job, tagSize)
	if err != nil {
		return nil, fmt.Errorf("mesh: derive the tag: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("mesh: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("mesh: %w", err)
	}
	return &seal{aead: aead, tag: [tagSize]byte(tag)}, nil
}

func (s *seal) packet(b []byte) []byte { return s.aead.Seal(s.tag[:], nil, b, []byte("packet")) }

// openPacket opens a packet, if it is the job's and no replay.
func (s *seal) openPacket(b []byte) ([]byte, error) {
	if !bytes.HasPrefix(b, s.tag[:]) {
		return nil, errStranger
	}
	return s.open(b[tagSize:], []byte("packet"), true)
}

func (s *seal) open(b, bound []byte, first bool) ([]byte, error) {
	plain, err := s.aead.Open(nil, nil, b, bound)
	if err != nil {
		return nil, errStranger
	}
	if first {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.seen.add([nonceSize]byte(b)) {
			return nil, errReplay
		}
	}
	return plain, nil
}

// stream is one end of a stream. Like any connection's, its Read and its Write are for one goroutine each.
type stream struct {
	net.Conn
	seal    *seal
	inbound bool
	settled func(error) // called once, when the first record of an inbound stream was read or refused
	stop    func() bool // keeps the transport's Shutdown from closing it

	sent, got uint64 // records
	first     [nonceSize]byte
	rest      []byte // of the last record
}

// Close closes the connection.
func (c *stream) Close() error {
	c.stop()
	return c.Conn.Close()
}

// bound is the additional data of the n-th record in a direction.
func (c *stream) bound(dialers bool, n uint64) []byte {
	b := []byte("answer")
	if dialers {
		b = []byte("record")
		if n == 0 {
			return b
		}
	}
	return binary.BigEndian.AppendUint64(append(b, c.first[:]...), n)
}

// Write sends p in records. On an inbound stream it comes after the first Read.
func (c *stream) Write(p []byte) (n int, err error) {
	if c.inbound && c.got == 0 {
		return 0, errStranger
	}
	for len(p) > 0 && err == nil {
		part := p[:min(len(p), maxRecord)]
		p = p[len(part):]
		var b []byte
		if !c.inbound && c.sent == 0 {
			b = append(b, c.seal.tag[:]...)
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)+sealOverhead))
		head := len(b)
		b = c.seal.aead.Seal(b, nil, part, c.bound(!c.inbound, c.sent))
		if !c.inbound && c.sent == 0 {
			c.first = [nonceSize]byte(b[head:])
		}
		c.sent++
		if _, err = c.Conn.Write(b); err == nil {
			n += len(part)
		}
	}
	return n, err
}

// Read reads authentic data.
func (c *stream) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		var err error
		c.rest, err = c.record()
		if settled := c.settled; settled != nil {
			c.settled = nil
			settled(err)
		}
		if err != nil {
			return 0, err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *stream) record() ([]byte, error) {
	first := c.inbound && c.got == 0
	if first {
		var tag [tagSize]byte
		if _, err := io.ReadFull(c.Conn, tag[:]); err != nil || tag != c.seal.tag {
			return nil, errStranger
		}
	}
	var head [4]byte
	if _, err := io.ReadFull(c.Conn, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	switch {
	case size > maxRecord+sealOverhead:
		return nil, errTooLarge
	case size <= sealOverhead:
		return nil, errStranger
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(c.Conn, b); err != nil {
		return nil, err
	}
	plain, err := c.seal.open(b, c.bound(c.inbound, c.got), first)
	if err != nil {
		return nil, err
	}
	if first {
		c.first = [nonceSize]byte(b)
	}
	c.got++
	return plain, nil
}
