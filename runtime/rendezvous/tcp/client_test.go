package tcp

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// TestExchangesTakeTurns: if exchanges start together, one connects, and when it gives up another one continues.
func TestExchangesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		id, err := lifecycle.NewUniqueID("192.0.2.1:4000")
		if err != nil {
			t.Fatal(err)
		}
		c := Dial(id, Config{Log: quiet, dial: network.dial}) // dialing waits, because nobody accepts
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first := start(brief, c, "first", 0, 1)
		synctest.Wait()
		second := start(t.Context(), c, "second", 0, 1)
		if r := <-first; !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("the first: %v", r.err)
		}
		s := open(network, quiet)
		if err := s.serve(id); err != nil {
			t.Fatal(err)
		}
		if r := <-second; r.err != nil {
			t.Errorf("the second: %v", r.err)
		}
		_ = c.Close()
		s.Close()
	})
}

// TestCloseWhileConnecting: a client that can't reach a server can be closed.
func TestCloseWhileConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		id, err := lifecycle.NewUniqueID("192.0.2.1:4000")
		if err != nil {
			t.Fatal(err)
		}
		c := Dial(id, Config{Log: quiet, dial: network.dial})
		connecting := start(t.Context(), c, "one", 0, 2)
		synctest.Wait()
		queued := start(t.Context(), c, "two", 0, 2)
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		for _, done := range []<-chan result{connecting, queued} {
			r := <-done
			wantText(t, r.err, "this rank closed its rendezvous")
		}
	})
}

// TestPeerThatNeverReads: the queue of replies that a client does not read is bounded.
func TestPeerThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		s := open(network, quiet)
		id, err := lifecycle.NewUniqueID("192.0.2.1:4000")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.serve(id); err != nil {
			t.Fatal(err)
		}
		hello := door.Hello{Room: door.Room(lifecycle.RootCommID(id)), Secret: id.Secret(), Dial: network.dial}
		conn, err := door.Dial(t.Context(), "", hello, func(err error) error { return err })
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Write(
			(&request{kind: kindJoin, stream: 1, member: rendezvous.Member{Size: 2}, key: "cards"}).encode(),
		)
		asked := 0
		for ; err == nil && asked < 2*maxQueued; asked++ {
			_, err = conn.Write((&request{kind: kindAsk, stream: 1, key: "cards"}).encode())
		}
		if err == nil {
			t.Errorf("the server took %d questions without an answer being read", asked)
		}
		s.Close()
	})
}

// TestAcceptFails: a server that is out of file descriptors retries.
func TestAcceptFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, book := newPipes(), newLogbook()
		s := open(&exhausted{pipes: network, times: 20}, book.logger())
		id, err := lifecycle.NewUniqueID("192.0.2.1:4000")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.serve(id); err != nil {
			t.Fatal(err)
		}
		c := Dial(id, Config{Log: quiet, dial: network.dial})
		if r := <-start(t.Context(), c, "cards", 0, 1); r.err != nil {
			t.Error(r.err)
		}
		if lines := book.all(); len(lines) != 1 || !strings.Contains(lines[0], "too many open files") {
			t.Errorf("the log: %q", lines)
		}
		_ = c.Close()
		s.Close()
	})
}

// exhausted is a listener that fails some times before it works.
type exhausted struct {
	*pipes
	times int
}

func (e *exhausted) Accept() (net.Conn, error) {
	if e.times > 0 {
		e.times--
		return nil, syscall.EMFILE
	}
	return e.pipes.Accept()
}
