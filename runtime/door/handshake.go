package door

import (
	"context"
	"crypto/hmac"
	crand "crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"
	"time"
)

const (
	magic     = "carillon"
	version   = 5 // version of the handshake and of the data after it
	nonceSize = 32
	helloSize = len(magic) + 1 + 16 + 16 + 1 + nonceSize

	challengeSize = 1 + nonceSize

	firstPause = 10 * time.Millisecond // pause between two attempts to dial, doubling
	lastPause  = time.Second
)

// Room identifies the purpose of a connection.
type Room [16]byte

// About is a dialer's data about a connection, for the room. It isn't secret, and is authenticated.
type About [16]byte

// Hello is the dialer's side of a handshake.
type Hello struct {
	Room   Room
	About  About
	Secret []byte
	// Wire is the minimum protection of the connection; a door may ask for more.
	Wire Wire
	// Dial opens the underlying connection; nil does so over the network. It is for tests.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// The errors of a handshake.
var (
	// ErrUnknown means that there is no such room behind the door, or not yet.
	ErrUnknown = errors.New("the other side knows no such rendezvous or rank")
	// ErrVersion means that the two sides speak different versions of the handshake.
	ErrVersion = errors.New("the other side speaks another version of the protocol; run one build on all ranks")
	// ErrSecret means that the other side does not have the room's secret.
	ErrSecret = errors.New("the other side does not have the secret: it belongs to another job")
)

// The first byte of a door's answer. The numbers are part of the protocol.
const (
	welcome = iota
	unknownRoom
	otherVersion
	wrongSecret
)

var (
	// errNoHello is the error of a connection on which no byte arrived.
	errNoHello = errors.New("it sent nothing")
	// errLeft is the error of a connection to a room of this door that its dialer closed before the proof.
	errLeft    = errors.New("it left before it proved itself")
	errForeign = errors.New("it does not speak this protocol")
)

// Gone reports whether the error of an attempt to dial means that a former room has ended: no program listens at the
// address any more, or another one does, or the door doesn't know the room.
func Gone(met error) bool {
	return refused(met) || errors.Is(met, ErrUnknown) || errors.Is(met, errForeign)
}

// refused reports whether the other host's kernel answered an attempt to dial with the information that no program
// listens there. It resets connections that a program had not accepted when it ended.
func refused(met error) bool {
	op, ok := errors.AsType[*net.OpError](met)
	return ok && op.Op == "dial" && (errors.Is(met, syscall.ECONNREFUSED) || errors.Is(met, syscall.ECONNRESET))
}

// Silent reports whether an attempt to dial failed without an answer from the other host's kernel.
func Silent(met error) bool {
	op, ok := errors.AsType[*net.OpError](met)
	return ok && op.Op == "dial" && !refused(met)
}

// LocalFault reports whether an attempt to dial failed because of this process: it is out of descriptors or memory, or
// isn't permitted to connect.
func LocalFault(met error) bool {
	for _, fault := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EACCES, syscall.EPERM} {
		if errors.Is(met, fault) {
			return true
		}
	}
	return false
}

// proof returns the proof that a side has the secret. It covers the messages of both sides, so it is valid only for
// this connection and this side.
func proof(secret []byte, side string, hello, challenge []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("carillon " + side + "\x00"))
	m.Write(hello)
	m.Write(challenge)
	return m.Sum(nil)
}

// Dial opens a connection to a room behind the door at an address, host:port. It retries, at growing intervals, until
// ctx ends, an attempt fails with ErrSecret, ErrVersion or a LocalFault, or failed returns an error; it returns that
// error. failed gets the error of each attempt. Unless both sides ask for Plain, the connection is a *Sealed.
func Dial(ctx context.Context, addr string, h Hello, failed func(error) error) (net.Conn, error) {
	attempts := 0
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		conn, met := try(ctx, addr, h)
		if met == nil {
			return conn, nil
		}
		// The error of an attempt that ended because of ctx says less than the previous one.
		if attempts++; attempts == 1 || ctx.Err() == nil {
			if err := failed(met); err != nil {
				return nil, err
			}
		}
		if errors.Is(met, ErrSecret) || errors.Is(met, ErrVersion) || LocalFault(met) {
			return nil, met
		}
		// Thousands of ranks start together; random pauses spread their connections.
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func try(ctx context.Context, addr string, h Hello) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	dial := h.Dial
	if dial == nil {
		dialer := net.Dialer{KeepAlive: -1} // see KeepWatch
		dial = func(ctx context.Context, addr string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", addr) }
	}
	conn, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // ends greet
	agreed, err := greet(conn, h)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = conn.Close() // its error is not the reason
		return nil, fmt.Errorf("handshake: %w", err)
	}
	return agreed.over(conn, true), nil
}

func greet(conn io.ReadWriter, h Hello) (agreed, error) {
	hello := append(make([]byte, 0, helloSize), magic...)
	hello = append(hello, version)
	hello = append(hello, h.Room[:]...)
	hello = append(hello, h.About[:]...)
	hello = appendNonce(append(hello, byte(h.Wire)))
	if _, err := conn.Write(hello); err != nil {
		return agreed{}, err
	}
	challenge, err := readAnswer(conn, challengeSize)
	if err != nil {
		return agreed{}, err
	}
	theirs := Wire(challenge[0])
	if theirs > Encrypt {
		return agreed{}, errForeign
	}
	if _, err := conn.Write(proof(h.Secret, "dialer", hello, challenge)); err != nil {
		return agreed{}, err
	}
	proved, err := readAnswer(conn, sha256.Size)
	if err == nil && !hmac.Equal(proved, proof(h.Secret, "door", hello, challenge)) {
		err = ErrSecret
	}
	return agree(h.Secret, h.Wire, theirs, hello, challenge), err
}

// agree returns the result of a handshake. The proofs cover the protection that each side requested.
func agree(secret []byte, mine, theirs Wire, hello, challenge []byte) agreed {
	return agreed{wire: max(mine, theirs), secret: secret, transcript: slices.Concat(hello, challenge)}
}

func appendNonce(to []byte) []byte {
	nonce := make([]byte, nonceSize)
	_, _ = crand.Read(nonce) // never fails
	return append(to, nonce...)
}

// readAnswer reads a challenge or a welcome of a known size. It returns an error for a refusal.
func readAnswer(conn io.Reader, size int) ([]byte, error) {
	head, body := make([]byte, 2), make([]byte, size)
	if _, err := io.ReadFull(conn, head); err != nil {
		return nil, err
	}
	switch head[0] {
	case welcome:
		_, err := io.ReadFull(conn, body)
		return body, err
	case unknownRoom:
		return nil, ErrUnknown
	case otherVersion:
		return nil, fmt.Errorf("%w (there: %d, here: %d)", ErrVersion, head[1], version)
	case wrongSecret:
		return nil, ErrSecret
	default:
		return nil, errForeign
	}
}

// answer runs the door's part of the handshake. The error is for its log; the dialer has got its answer.
func answer(conn io.ReadWriter, wire Wire, lookup func(Room) *room) (*room, About, agreed, error) {
	fail := func(err error) (*room, About, agreed, error) { return nil, About{}, agreed{}, err }
	hello := make([]byte, helloSize)
	start := hello[:len(magic)+1]
	if _, err := io.ReadFull(conn, start); errors.Is(err, io.EOF) {
		return fail(errNoHello)
	} else if err != nil {
		return fail(err)
	}
	if string(hello[:len(magic)]) != magic {
		return fail(errForeign)
	}
	refuse := func(why byte, err error) (*room, About, agreed, error) {
		_, _ = conn.Write([]byte{why, version}) // the dialer may have closed already
		return fail(err)
	}
	if v := hello[len(magic)]; v != version {
		return refuse(otherVersion, fmt.Errorf("it speaks version %d of the protocol, and this is %d", v, version))
	}
	rest := hello[len(start):]
	if _, err := io.ReadFull(conn, rest); err != nil {
		return fail(err)
	}
	name, about, theirs := Room(rest), About(rest[len(Room{}):]), Wire(rest[len(Room{})+len(About{})])
	if theirs > Encrypt {
		return fail(errForeign)
	}
	r := lookup(name)
	if r == nil {
		return refuse(unknownRoom, fmt.Errorf("%w: %x", ErrUnknown, name[:4]))
	}
	said := appendNonce([]byte{welcome, version, byte(wire)})
	challenge := said[2:]
	if _, err := conn.Write(said); errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return fail(errLeft)
	} else if err != nil {
		return fail(err)
	}
	proved := make([]byte, sha256.Size)
	if _, err := io.ReadFull(conn, proved); errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return fail(errLeft)
	} else if err != nil {
		return fail(err)
	}
	if !hmac.Equal(proved, proof(r.secret, "dialer", hello, challenge)) {
		return refuse(wrongSecret, fmt.Errorf("it does not have the secret of %x", name[:4]))
	}
	_, err := conn.Write(append([]byte{welcome, version}, proof(r.secret, "door", hello, challenge)...))
	return r, about, agree(r.secret, wire, theirs, hello, challenge), err
}
