package tcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/carillon-rt/carillon/lifecycle"
)

const nonceSize = 32

// goaway is why a server ends a handshake. The numbers are the protocol's.
type goaway uint8

const (
	goawayUnknown goaway = iota + 1 // the server does not serve this id
	goawayVersion                   // the server speaks another version
	goawayProof                     // the client does not know the id's secret
)

func (g goaway) String() string {
	switch g {
	case goawayUnknown:
		return "the unique id is not known there: it belongs to another job, or its server has ended or forgotten it; give all ranks of a job the same job name and secret"
	case goawayVersion:
		return "the server speaks another version of the protocol; run one version of Carillon on all ranks"
	case goawayProof:
		return "the server does not accept this unique id's secret: it is another job's"
	default:
		return fmt.Sprintf("the server sent us away (%d)", uint8(g))
	}
}

// awayError is a goaway that a client received.
type awayError struct {
	reason  goaway
	version uint8 // the server's
}

func (e *awayError) Error() string {
	if e.reason == goawayVersion {
		return fmt.Sprintf("%s (there: %d, here: %d)", e.reason, e.version, version)
	}
	return e.reason.String()
}

// errWordless is the end of a connection that came and went without a byte.
var errWordless = errors.New("it said nothing")

// errUnknown is the end of a connection that asked for a communicator that is not served here, or not yet.
var errUnknown = errors.New("it asked for the unknown communicator")

// proofError says that a server did not know the secret.
type proofError struct{}

func (*proofError) Error() string {
	return "the server does not know this unique id's secret: another job answers at that address"
}

// transcript is what both sides have said, and what their proofs are about.
type transcript struct {
	comm           lifecycle.CommID
	client, server [nonceSize]byte
}

// proof is the HMAC that shows knowledge of the secret. The label keeps one side's proof from being played back as the other's.
func (t *transcript) proof(secret []byte, label string) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("carillon rendezvous " + label))
	mac.Write([]byte{0, version})
	mac.Write(t.comm[:])
	mac.Write(t.client[:])
	mac.Write(t.server[:])
	return mac.Sum(nil)
}

func encodeHello(t *transcript) []byte {
	b := append(beginFrame(kindHello), magic...)
	b = append(b, version)
	b = append(b, t.comm[:]...)
	return finishFrame(append(b, t.client[:]...))
}

// decodeHello also returns the version that the client speaks; the rest means something only in ours.
func decodeHello(k kind, body []byte, t *transcript) (peer uint8, err error) {
	if k != kindHello || len(body) < len(magic)+1 || string(body[:len(magic)]) != magic {
		return 0, fmt.Errorf("%w: not a hello of Carillon", errMalformed)
	}
	peer, rest := body[len(magic)], body[len(magic)+1:]
	if peer != version {
		return peer, nil
	}
	if len(rest) != len(t.comm)+nonceSize {
		return peer, fmt.Errorf("%w: hello", errMalformed)
	}
	copy(t.comm[:], rest)
	copy(t.client[:], rest[len(t.comm):])
	return peer, nil
}

// greet is the client's side of the handshake. The caller has set the connection's deadline.
func greet(conn net.Conn, id lifecycle.UniqueID) error {
	t := transcript{comm: lifecycle.RootCommID(id)}
	rand.Read(t.client[:])
	if _, err := conn.Write(encodeHello(&t)); err != nil {
		return err
	}
	body, err := expect(conn, kindChallenge)
	if err != nil {
		return err
	}
	if len(body) != 1+nonceSize || body[0] != version {
		return fmt.Errorf("%w: challenge", errMalformed)
	}
	copy(t.server[:], body[1:])
	secret := id.Secret()
	if _, err := conn.Write(finishFrame(append(beginFrame(kindProof), t.proof(secret, "client")...))); err != nil {
		return err
	}
	body, err = expect(conn, kindWelcome)
	if err != nil {
		return err
	}
	if !hmac.Equal(body, t.proof(secret, "server")) {
		return &proofError{}
	}
	return nil
}

// expect reads a frame of the handshake from a server, which may send us away instead.
func expect(conn net.Conn, want kind) ([]byte, error) {
	k, body, err := readFrame(conn, handshakeLimit)
	switch {
	case err != nil:
		return nil, err
	case k == kindGoAway && len(body) == 2:
		return nil, &awayError{reason: goaway(body[1]), version: body[0]}
	case k != want:
		return nil, fmt.Errorf("%w: kind %d, expected %d", errMalformed, k, want)
	}
	return body, nil
}

// admit is the server's side of the handshake. Lookup finds the id that a client wants, nil when it is not served. The error is for
// the server's log; the client has been told what it may know.
func admit(conn net.Conn, lookup func(lifecycle.CommID) *meeting) (*meeting, error) {
	k, body, err := readFrame(conn, handshakeLimit)
	if errors.Is(err, io.EOF) {
		return nil, errWordless
	}
	if err != nil {
		return nil, err
	}
	var t transcript
	peer, err := decodeHello(k, body, &t)
	if err != nil {
		return nil, err
	}
	if peer != version {
		return nil, sendAway(conn, goawayVersion, fmt.Errorf("it speaks version %d of the protocol, and this is %d", peer, version))
	}
	m := lookup(t.comm)
	if m == nil {
		return nil, sendAway(conn, goawayUnknown, fmt.Errorf("%w %s", errUnknown, t.comm.Short()))
	}
	rand.Read(t.server[:])
	challenge := append(beginFrame(kindChallenge), version)
	if _, err := conn.Write(finishFrame(append(challenge, t.server[:]...))); err != nil {
		return nil, err
	}
	k, body, err = readFrame(conn, handshakeLimit)
	if err != nil {
		return nil, err
	}
	if k != kindProof || !hmac.Equal(body, t.proof(m.secret, "client")) {
		return nil, sendAway(conn, goawayProof, fmt.Errorf("it does not know the secret of communicator %s", t.comm.Short()))
	}
	_, err = conn.Write(finishFrame(append(beginFrame(kindWelcome), t.proof(m.secret, "server")...)))
	return m, err
}

// sendAway tells the client, as well as it can, and returns why.
func sendAway(conn net.Conn, reason goaway, why error) error {
	_, _ = conn.Write(finishFrame(append(beginFrame(kindGoAway), version, byte(reason)))) // it may be gone already, which is as well
	return why
}
