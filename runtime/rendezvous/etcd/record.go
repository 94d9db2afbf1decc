package etcd

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/json"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// The events of a rank.
const (
	joined    = "join"    // it joined an exchange
	confirmed = "confirm" // it has the cards of all ranks, and so was alive after they came
	gaveUp    = "leave"   // it left an exchange that it had joined
	withdrew  = "absent"  // it won't join an exchange
	done      = "bye"     // it has finished with the unique id
)

// event is an event of a rank in one generation.
type event struct {
	Generation string
	What       string
	Key        string               `json:",omitempty"` // of the exchange
	Member     rendezvous.Member    // the rank
	Payload    []byte               `json:",omitempty"`
	How        rendezvous.Departure `json:",omitempty"` // how it left, and why
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

// open reads the value of an etcd key; false if it was written without the secret.
func (s seal) open(key, value []byte, v any) bool {
	text, err := s.Open(nil, nil, value, key)
	return err == nil && json.Unmarshal(text, v) == nil
}
