package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// shaking is the length of what a dialer sends before the first record: hello and proof.
const shaking = 8 + 1 + 16 + 16 + 1 + 32 + 32

// adversary is between rank 0 and rank 1, and sees and changes what rank 0 sends on one of its connections.
type adversary struct {
	net.Listener
	to     string
	change func(k kind, i int, record []byte, pass func([]byte))
	work   sync.WaitGroup
}

// between puts an adversary before a Listener. It is given the records of each connection after the handshake, with i
// counting from 0; pass forwards data, and nil ends the stream.
func between(t *testing.T, s *Listener, change func(k kind, i int, record []byte, pass func([]byte))) *adversary {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &adversary{Listener: l, to: s.Door().Addr(), change: change}
	a.work.Go(func() {
		for k := control; ; k++ { // connections are dialed in this order
			dialer, err := l.Accept()
			if err != nil {
				return
			}
			a.work.Go(func() { a.carry(k, dialer.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		a.work.Wait()
	})
	return a
}

func (a *adversary) carry(k kind, dialer *net.TCPConn) {
	defer dialer.Close()
	c, err := net.Dial("tcp", a.to)
	if err != nil {
		return
	}
	room := c.(*net.TCPConn)
	defer room.Close()
	a.work.Go(func() {
		_, _ = io.Copy(dialer, room)
		_ = dialer.CloseWrite()
	})
	defer room.CloseWrite() //nolint:errcheck // it may be gone
	if _, err := io.CopyN(room, dialer, shaking); err != nil {
		return
	}
	pass := func(b []byte) {
		if b == nil {
			_ = room.CloseWrite()
		}
		_, _ = room.Write(b)
	}
	for i := 0; ; i++ {
		record := make([]byte, 4)
		if _, err := io.ReadFull(dialer, record); err != nil {
			return
		}
		record = append(record, make([]byte, binary.BigEndian.Uint32(record)+16)...)
		if _, err := io.ReadFull(dialer, record[4:]); err != nil {
			return
		}
		a.change(k, i, record, pass)
	}
}

// changes are the modifications of records 0, 1, 2 … of a connection; record 0 is not changed.
func changes() map[string]func(i int, record []byte, pass func([]byte)) {
	var kept []byte
	return map[string]func(i int, record []byte, pass func([]byte)){
		"flipped": func(i int, record []byte, pass func([]byte)) {
			if i == 1 {
				record[6] ^= 0x10
			}
			pass(record)
		},
		"dropped": func(i int, record []byte, pass func([]byte)) {
			if i != 1 {
				pass(record)
			}
		},
		"repeated": func(i int, record []byte, pass func([]byte)) {
			pass(record)
			if i == 0 {
				pass(record)
			}
		},
		"swapped": func(i int, record []byte, pass func([]byte)) {
			switch i {
			case 1:
				kept = record
			case 2:
				pass(record)
				pass(kept)
			default:
				pass(record)
			}
		},
		"truncated": func(i int, record []byte, pass func([]byte)) {
			switch i {
			case 0:
				pass(record)
			case 1:
				pass(record[:len(record)-1])
				pass(nil)
			}
		},
	}
}

// However rank 0's data is modified, rank 1 gets what was sent before, nothing else, and an error that names rank 0.
func TestDataIsInterferedWith(t *testing.T) {
	for _, wire := range []door.Wire{door.Authenticate, door.Encrypt} {
		for name, change := range changes() {
			t.Run(fmt.Sprintf("%v/%s", wire, name), func(t *testing.T) {
				s := listenOn(t, wire)
				s.keepalive = time.Second
				a := between(t, s, func(k kind, i int, record []byte, pass func([]byte)) {
					if k == control {
						pass(record)
						return
					}
					change(i, record, pass)
				})
				conns, users := connectVia(t, s, a.Addr().String())
				var first []byte
				for i := range 4 {
					message := bytes.Repeat([]byte{byte('a' + i)}, 1000)
					n, err := conns[0].TrySend([][]byte{message}, false)
					if i == 0 {
						first = message
					}
					if n != len(message) && i < 2 { // later, rank 0 may know that rank 1 receives no more
						t.Fatal(n, err)
					}
				}
				var lost *lifecycle.PeerError
				err := awaitLoss(t, users[1])
				if !errors.As(err, &lost) || lost.Code != lifecycle.CodeUnreachable || lost.Rank != 0 {
					t.Errorf("rank 1 got %v", err)
				}
				if forged := errors.Is(err, door.ErrForged); forged != (name != "truncated") {
					t.Errorf("that it was forged is %v: %v", forged, err)
				}
				got := users[1].received()
				if !bytes.Equal(got, first) {
					t.Errorf("rank 1 was given %d bytes, want the first message, of %d", len(got), len(first))
				}
			})
		}
	}
}

// Rank 1 only believes frames on the control connection that rank 0 sent.
func TestControlIsInterferedWith(t *testing.T) {
	s := listenOn(t, door.Authenticate)
	a := between(t, s, func(k kind, _ int, record []byte, pass func([]byte)) {
		if k == control {
			record[4] = frameBye
		}
		pass(record)
	})
	conns, users := connectVia(t, s, a.Addr().String())
	say(conns[0].control, transport.AppendNotice([]byte{frameNotice, 0, 0}, transport.Notice{}))
	var lost *lifecycle.PeerError
	err := awaitLoss(t, users[1])
	if !errors.As(err, &lost) || lost.Code != lifecycle.CodeUnreachable || lost.Rank != 0 ||
		!errors.Is(err, door.ErrForged) {
		t.Errorf("rank 1 got %v", err)
	}
}

// Data that was taken is delivered even when the connection is closed at once and the kernel's buffers are full.
func TestSealedBytesOutliveClose(t *testing.T) {
	conns, users := connect(t, listenOn(t, door.Encrypt))
	resume := stop(users[1])
	sent := flood(t, conns[0])
	_ = conns[0].Close()
	resume()
	if err := awaitLoss(t, users[1]); err != nil {
		t.Error(err)
	}
	if got := len(users[1].received()); got != sent {
		t.Errorf("%d bytes came of %d", got, sent)
	}
}
