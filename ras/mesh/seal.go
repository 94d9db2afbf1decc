package mesh

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"sync"
)

// SecretSize is the size of the job's secret, in bytes.
const SecretSize = 32

const (
	tagSize      = 8
	nonceSize    = 12
	sealOverhead = nonceSize + 16 // the nonce and the authentication tag
)

var (
	errStranger = errors.New("mesh: not of this job")
	errReplay   = errors.New("mesh: a replay")
)

// seal encrypts and authenticates everything that the members of a job send each other, so that memberlist sees only
// authentic bytes, with keys derived from the job's secret and name.
//
//	packet   tag 8 | nonce 12 | encrypted with AES-256-GCM
//	stream   TLS 1.3, in which each side proves that it has the job's key
//
// A packet's tag is derived from the same secret and name, and sent in the clear, to reject most strangers at once.
type seal struct {
	aead cipher.AEAD
	tag  [tagSize]byte
	tls  *tls.Config

	mu sync.Mutex
	// seen are recent nonces. Older replays are stopped by their content: incarnations, instances, times.
	seen recent[[nonceSize]byte]
}

func newSeal(secret []byte, job string) (*seal, error) {
	var derived [3][]byte
	for i, of := range []struct {
		what string
		size int
	}{{"key", 32}, {"tag", tagSize}, {"identity", ed25519.SeedSize}} {
		var err error
		if derived[i], err = hkdf.Key(sha256.New, secret, nil, "carillon mesh "+of.what+" "+job, of.size); err != nil {
			return nil, fmt.Errorf("mesh: derive the %s: %w", of.what, err)
		}
	}
	block, err := aes.NewCipher(derived[0])
	if err != nil {
		return nil, fmt.Errorf("mesh: %w", err)
	}
	s := &seal{tag: [tagSize]byte(derived[1])}
	if s.aead, err = cipher.NewGCMWithRandomNonce(block); err != nil {
		return nil, fmt.Errorf("mesh: %w", err)
	}
	if s.tls, err = streamConfig(ed25519.NewKeyFromSeed(derived[2])); err != nil {
		return nil, fmt.Errorf("mesh: certify the job's key: %w", err)
	}
	return s, nil
}

// streamConfig has each side of a stream prove that it has the job's key, which all members share.
func streamConfig(key ed25519.PrivateKey) (*tls.Config, error) {
	public := key.Public().(ed25519.PublicKey)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{
			Certificate: [][]byte{certificate}, PrivateKey: key,
		}},
		ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true, // the key alone counts
		VerifyConnection: func(state tls.ConnectionState) error {
			if !public.Equal(state.PeerCertificates[0].PublicKey) {
				return errStranger
			}
			return nil
		},
		// If a dialer closed a stream without having read a ticket, its kernel would reset the stream and drop what it
		// sent.
		SessionTicketsDisabled: true,
	}, nil
}

func (s *seal) packet(b []byte) []byte { return s.aead.Seal(s.tag[:], nil, b, nil) }

// openPacket opens a packet, if it is the job's and no replay.
func (s *seal) openPacket(b []byte) ([]byte, error) {
	sealed, ours := bytes.CutPrefix(b, s.tag[:])
	if !ours {
		return nil, errStranger
	}
	plain, err := s.aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return nil, errStranger
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.seen.add([nonceSize]byte(sealed)) {
		return nil, errReplay
	}
	return plain, nil
}
