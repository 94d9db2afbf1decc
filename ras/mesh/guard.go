package mesh

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
)

// SecretSize is the size of the job's secret, in bytes.
const SecretSize = 32

// keys are what is derived from the job's secret: the key of AES-256-GCM, and the label that stands before everything
// in the clear. The label does not tell the secret, and is another for each job.
type keys struct {
	gossip []byte
	label  string
}

func deriveKeys(secret []byte, job string) (keys, error) {
	if len(secret) != SecretSize {
		return keys{}, fmt.Errorf("mesh: Secret has %d bytes, want %d", len(secret), SecretSize)
	}
	gossip, err := hkdf.Key(sha256.New, secret, nil, "carillon mesh gossip "+job, 32)
	if err != nil {
		return keys{}, fmt.Errorf("mesh: derive the key: %w", err)
	}
	label, err := hkdf.Key(sha256.New, secret, nil, "carillon mesh label "+job, 8)
	if err != nil {
		return keys{}, fmt.Errorf("mesh: derive the label: %w", err)
	}
	return keys{gossip, "carillon/" + hex.EncodeToString(label)}, nil
}

// What memberlist puts around a message: see its label.go, security.go and net.go.
const (
	labelType      = 244
	encryptType    = 10
	sealVersion    = 1
	nonceSize      = 12
	tagSize        = 16
	minSealed      = 1 + nonceSize + tagSize + 1 // of at least one byte, which says what it is
	streamOverhead = 5                           // type and length, before what is sealed
)

var (
	errStranger = errors.New("mesh: not of this job")
	errReplay   = errors.New("mesh: came before")
	errTooLarge = errors.New("mesh: too large")
)

// guard tells the job's messages from others, before memberlist sees them, so that none of its code runs on bytes that
// nobody vouches for.
type guard struct {
	label []byte // with its header
	aad   []byte // the label alone
	aead  cipher.AEAD
	// streamAAD is the room in which a stream's additional data is put together; packets' is the label.
	seen nonces
}

func newGuard(k keys) (*guard, error) {
	block, err := aes.NewCipher(k.gossip)
	if err != nil {
		return nil, fmt.Errorf("mesh: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("mesh: %w", err)
	}
	header := append([]byte{labelType, byte(len(k.label))}, k.label...)
	return &guard{label: header, aad: []byte(k.label), aead: aead}, nil
}

// packet says whether a packet is the job's and new.
func (g *guard) packet(b []byte) error {
	if len(b) < len(g.label) || string(b[:len(g.label)]) != string(g.label) {
		return errStranger
	}
	return g.open(b[len(g.label):], g.aad)
}

// streamHeader checks what a stream begins with, which is headerSize bytes, and returns how many follow that are sealed.
func (g *guard) streamHeader(b []byte, limit int) (sealed int, err error) {
	if len(b) != g.headerSize() || string(b[:len(g.label)]) != string(g.label) || b[len(g.label)] != encryptType {
		return 0, errStranger
	}
	n := binary.BigEndian.Uint32(b[len(g.label)+1:])
	switch {
	case n > uint32(limit):
		return 0, errTooLarge
	case n < minSealed:
		return 0, errStranger
	}
	return int(n), nil
}

func (g *guard) headerSize() int { return len(g.label) + streamOverhead }

// stream says whether a stream's first message, header and all, is the job's and new.
func (g *guard) stream(b []byte) error {
	header := g.headerSize()
	if len(b) < header {
		return errStranger
	}
	aad := append(b[len(g.label):header:header], g.aad...)
	return g.open(b[header:], aad)
}

func (g *guard) open(sealed, aad []byte) error {
	if len(sealed) < minSealed || sealed[0] != sealVersion {
		return errStranger
	}
	nonce := sealed[1 : 1+nonceSize]
	if _, err := g.aead.Open(nil, nonce, sealed[1+nonceSize:], aad); err != nil {
		return errStranger
	}
	if !g.seen.add([nonceSize]byte(nonce)) {
		return errReplay
	}
	return nil
}

// nonces remembers the last ones: at least half of 2·nonceWindow. What is older is stopped by what it says: by
// incarnations, instances, times and question ids.
type nonces struct {
	mu        sync.Mutex
	now, last map[[nonceSize]byte]struct{}
}

const nonceWindow = 4096

func (n *nonces) add(nonce [nonceSize]byte) (fresh bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, inNow := n.now[nonce]
	_, inLast := n.last[nonce]
	if inNow || inLast {
		return false
	}
	if n.now == nil || len(n.now) >= nonceWindow {
		n.last, n.now = n.now, make(map[[nonceSize]byte]struct{})
	}
	n.now[nonce] = struct{}{}
	return true
}
