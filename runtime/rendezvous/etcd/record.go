package etcd

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// What a rank did.
const (
	joined    = "join"    // an exchange
	confirmed = "confirm" // that it has the cards of all, so that it lives: a card alone may be of a rank that has died
	gaveUp    = "leave"   // an exchange that it had joined, for a reason
	withdrew  = "absent"  // from an exchange, before it had joined it
	done      = "bye"     // with the unique id
)

// event is what a rank did, in one generation.
type event struct {
	Generation string
	What       string
	Key        string               `json:",omitempty"` // of the exchange
	Member     rendezvous.Member    // who it is
	Payload    []byte               `json:",omitempty"`
	How        rendezvous.Departure `json:",omitempty"` // it left, and
	Reason     string               `json:",omitempty"`
}

// seal is the cipher of a unique id's values.
type seal struct{ cipher.AEAD }

func newSeal(id lifecycle.UniqueID) (seal, error) {
	key := sha256.Sum256(append([]byte("carillon etcd\n"), id.Secret()...))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return seal{}, err
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	return seal{gcm}, err
}

// close makes a value for an etcd key.
func (s seal) close(key string, v any) (string, error) {
	text, err := json.Marshal(v)
	return string(s.Seal(nil, nil, text, []byte(key))), err
}

// open reads the value of an etcd key; false for one that somebody without the secret wrote.
func (s seal) open(key, value []byte, v any) bool {
	text, err := s.Open(nil, nil, value, key)
	return err == nil && json.Unmarshal(text, v) == nil
}

// newName is a name that nobody else makes up.
func newName() string { return rand.Text() }
