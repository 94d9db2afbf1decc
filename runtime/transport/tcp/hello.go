package tcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/wire"
)

// The handshake. Every message has a fixed size, so that no stranger decides how much is read.
//
//	dialer                                             acceptor
//	  hello: magic, gate, comm, from, to, kind, nonce ──►  knows the gate, or hangs up
//	  checks  ◄── nonce, HMAC("acceptor", hello, nonces)
//	  HMAC("dialer", hello, nonces) ──►                    checks
//	          ◄── accepted
const (
	helloMagic = "CARILLN\x01"
	helloSize  = len(helloMagic) + 16 + 16 + 4 + 4 + 1 + nonceSize
	nonceSize  = 16
	accepted   = 'y'
)

// kind tells the two connections of a pair apart.
type kind uint8

const (
	data kind = iota
	control
	kinds // how many there are
)

// GateID names a Gate to those who dial.
type GateID [16]byte

// hello is how a connection begins.
type hello struct {
	gate     GateID
	comm     lifecycle.CommID
	from, to uint32
	kind     kind
	nonce    [nonceSize]byte
}

func (h *hello) encode() []byte {
	b := make([]byte, 0, helloSize)
	b = append(b, helloMagic...)
	b = append(b, h.gate[:]...)
	b = append(b, h.comm[:]...)
	b = binary.LittleEndian.AppendUint32(b, h.from)
	b = binary.LittleEndian.AppendUint32(b, h.to)
	b = append(b, byte(h.kind))
	return append(b, h.nonce[:]...)
}

func decodeHello(b []byte) (*hello, error) {
	if len(b) != helloSize || string(b[:len(helloMagic)]) != helloMagic {
		return nil, errors.New("not a hello of this version of Carillon")
	}
	h, r := new(hello), wire.NewReader(b[len(helloMagic):])
	r.Fill(h.gate[:])
	r.Fill(h.comm[:])
	h.from, h.to, h.kind = r.Uint32(), r.Uint32(), kind(r.Byte())
	r.Fill(h.nonce[:])
	if h.kind >= kinds {
		return nil, fmt.Errorf("hello of kind %d", h.kind)
	}
	return h, nil
}

// proof shows that role has the secret. It covers both nonces, so that it is good for this connection alone.
func proof(secret []byte, role string, hello []byte, nonce []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("carillon tcp " + role + "\x00"))
	m.Write(hello)
	m.Write(nonce)
	return m.Sum(nil)
}

// errProof means that the other side does not have the secret.
var errProof = errors.New("wrong proof: it does not have the communicator's secret")

// greet is the dialer's part of the handshake.
func greet(c io.ReadWriter, h hello, secret []byte) error {
	_, _ = rand.Read(h.nonce[:]) // never fails
	first := h.encode()
	if _, err := c.Write(first); err != nil {
		return err
	}
	answer := make([]byte, nonceSize+sha256.Size)
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	nonce := answer[:nonceSize]
	if !hmac.Equal(answer[nonceSize:], proof(secret, "acceptor", first, nonce)) {
		return errProof
	}
	if _, err := c.Write(proof(secret, "dialer", first, nonce)); err != nil {
		return err
	}
	_, err := io.ReadFull(c, answer[:1])
	if err == nil && answer[0] != accepted {
		err = fmt.Errorf("got %q instead of an acceptance", answer[0])
	}
	return err
}

// receive is the acceptor's part. lookup returns the secret of the gate that the hello is for.
func receive(c io.ReadWriter, lookup func(*hello) ([]byte, error)) (*hello, error) {
	first := make([]byte, helloSize)
	if _, err := io.ReadFull(c, first); err != nil {
		return nil, err
	}
	h, err := decodeHello(first)
	if err != nil {
		return nil, err
	}
	secret, err := lookup(h)
	if err != nil {
		return nil, err
	}
	var nonce [nonceSize]byte
	_, _ = rand.Read(nonce[:]) // never fails
	if _, err := c.Write(append(nonce[:], proof(secret, "acceptor", first, nonce[:])...)); err != nil {
		return nil, err
	}
	theirs := make([]byte, sha256.Size)
	if _, err := io.ReadFull(c, theirs); err != nil {
		return nil, err
	}
	if !hmac.Equal(theirs, proof(secret, "dialer", first, nonce[:])) {
		return nil, errProof
	}
	return h, nil
}
