package tcp

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
)

// TestWaitingLines in virtual time: a waiting rank logs after 2, 4, 8, 16 and 32 seconds which rank it waits for.
func TestWaitingLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, book := newPipes(), newLogbook()
		s := open(network, quiet)
		id, err := lifecycle.NewUniqueID("192.0.2.1:4000")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.serve(id); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		first := Dial(id, Config{Log: book.logger(), host: "a", pid: 1, dial: network.dial})
		second := Dial(id, Config{Log: quiet, host: "b", pid: 2, dial: network.dial})
		one, two := start(ctx, first, "cards", 0, 3), start(ctx, second, "cards", 1, 3)
		r := <-one
		wantMissing(t, r.err)
		wantText(t, r.err, "rank 0 of 3 waited 1m0s", "rank 2 has not arrived")
		r = <-two
		wantMissing(t, r.err)
		lines := book.all()
		if len(lines) != 5 {
			t.Errorf("%d lines in a minute, not 5: %q", len(lines), lines)
		}
		for i, at := range []string{"2s ", "4s ", "8s ", "16s ", "32s "} {
			if i < len(lines) && !strings.HasPrefix(lines[i], at) {
				t.Errorf("line %d is not at %s: %s", i, at, lines[i])
			}
		}
		const says = `msg="rank 2 has not come to the rendezvous yet" key=cards comm_rank=0 size=3 ` +
			`address=192.0.2.1:4000 waited=2s present="0 (a:1) and 1 (b:2)" gives_up_in=58s`
		if line := lines[0]; !strings.Contains(line, says) {
			t.Errorf("the line does not say %s: %s", says, line)
		}
		// A short wait after a long one starts over.
		done := start(t.Context(), first, "later", 0, 2)
		time.Sleep(time.Second)
		last := start(t.Context(), second, "later", 1, 2)
		if a, b := <-done, <-last; a.err != nil || b.err != nil {
			t.Error(a.err, b.err)
		}
		if n := len(book.all()); n != 5 {
			t.Errorf("%d lines after a wait of a second, not 5", n)
		}
		_, _ = first.Close(), second.Close()
		s.Close()
	})
}

// TestUnreachableLines in virtual time: a rank that does not find the server logs that, and retries less and less
// often.
func TestUnreachableLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, book := newPipes(), newLogbook()
		_ = network.Close()
		id, err := lifecycle.NewUniqueID("192.0.2.1:4000")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		c := Dial(id, Config{Log: book.logger(), dial: network.dial})
		_, err = c.Exchange(ctx, "cards", 1, 2, nil)
		wantMissing(t, err)
		wantText(t, err, "192.0.2.1:4000 was not reached in", "nobody listens", "waited 30s")
		lines := book.all()
		if len(lines) != 4 || !strings.Contains(lines[3], "nobody listens") {
			t.Errorf("the log: %q", lines)
		}
		for i, due := range []time.Duration{2, 4, 8, 16} {
			text, _, _ := strings.Cut(lines[i], " ")
			if at, err := time.ParseDuration(text); err != nil || at < due*time.Second || at > (due+2)*time.Second {
				t.Errorf("line %d is at %s, not after %d seconds", i, text, due)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSilentServer in virtual time: if a server accepts and never answers, the client gives up and retries, until the
// context ends.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		go func() {
			for {
				conn, err := network.Accept()
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(io.Discard, conn) // until the client hangs up
					_ = conn.Close()
				}()
			}
		}()
		id, err := lifecycle.NewUniqueID("192.0.2.1:4000")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 17*time.Second)
		defer cancel()
		began := time.Now()
		c := Dial(id, Config{Log: quiet, dial: network.dial})
		_, err = c.Exchange(ctx, "cards", 1, 2, nil)
		if took := time.Since(began); took != 17*time.Second+leaveTime { // it tries to tell
			t.Errorf("returned after %v", took)
		}
		wantMissing(t, err)
		wantText(t, err, "not reached in 3 attempts", "handshake: ", "timeout")
		_, _ = c.Close(), network.Close()
	})
}

// TestServerThatStopsAnswering in virtual time: a server that hangs in the middle of an exchange does not keep a rank
// whose context ends.
func TestServerThatStopsAnswering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		id, err := lifecycle.NewUniqueID("192.0.2.1:4000")
		if err != nil {
			t.Fatal(err)
		}
		d := door.Open(network, door.Plain, quiet)
		d.Add(door.Room(lifecycle.RootCommID(id)), id.Secret(), func(_ door.About, conn net.Conn) {
			_, _ = io.Copy(io.Discard, conn) // it reads, and never says a word
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		c := Dial(id, Config{Log: quiet, host: "a", pid: 1, dial: network.dial})
		_, err = c.Exchange(ctx, "cards", 0, 2, nil)
		if took := time.Since(began); took != 10*time.Second+leaveTime {
			t.Errorf("returned after %v", took)
		}
		wantMissing(t, err)
		wantText(t, err, "rank 1 has not arrived", "arrived: 0 (a:1)", context.DeadlineExceeded.Error())
		_, _ = c.Close(), d.Close()
	})
}
