package tcp

import (
	"crypto/rand"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

// TestGarbage sends what ports on a network get to hear, while a job meets.
func TestGarbage(t *testing.T) {
	book := newLogbook()
	s := listen(t, book.logger())
	id := serveID(t, s)
	first := start(within(t), client(t, id, Config{}), "cards", 0, 2)
	await(t, "rank 0 waits", func() bool { return waiting(s, id, "cards") == 1 })

	random := make([]byte, 1<<12)
	rand.Read(random)
	hello := encodeHello(&transcript{comm: lifecycle.RootCommID(id)})
	for name, bytes := range map[string]string{
		"a port scan":                   "",
		"an HTTP request":               "GET / HTTP/1.1\r\nHost: example\r\n\r\n",
		"a TLS hello":                   "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"a frame of no length":          "\x00\x00\x00\x00\x01",
		"a frame of all lengths":        "\xff\xff\xff\xff\x01",
		"a frame of too many bytes":     "\x00\x00\x00\x42\x01" + strings.Repeat("x", 65),
		"an empty hello":                "\x00\x00\x00\x01\x01",
		"a hello cut off":               string(hello[:20]),
		"a hello of a longer body":      "\x00\x00\x00\x3b\x01" + string(hello[5:]) + "x",
		"a join before the handshake":   string((&join{stream: 1, rank: 1, size: 2, key: "cards"}).encode()),
		"a hello and then a wrong kind": string(hello) + string(encodeRefused(1, "no")),
		"a hello and a proof of zeros":  string(hello) + string(finishFrame(append(beginFrame(kindProof), make([]byte, 32)...))),
		"random bytes":                  string(random),
	} {
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, bytes) // the server may have hung up by now, which is the point
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(handshakeTime / 2))
		if rest, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: the server holds on to it, having said %q", name, rest)
		}
		_ = conn.Close()
	}
	if n := waiting(s, id, "cards"); n != 1 {
		t.Errorf("%d ranks wait after the garbage", n)
	}
	second := start(within(t), client(t, id, Config{}), "cards", 1, 2)
	if a, b := <-first, <-second; a.err != nil || b.err != nil {
		t.Error(a.err, b.err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if lines := book.all(); len(lines) != 2 || !strings.Contains(lines[1], "count=11") {
		t.Errorf("12 refusals, and one who said nothing, make these lines, not one at once and one at the end: %q", lines)
	}
}

// TestSlowLoris fills every place with connections that say nothing. Ranks get in all the same.
func TestSlowLoris(t *testing.T) {
	s := listen(t, quiet)
	s.strangers.mu.Lock()
	s.strangers.room = 8
	s.strangers.mu.Unlock()
	id := serveID(t, s)
	for range 50 {
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	began := time.Now()
	one, two := start(within(t), client(t, id, Config{}), "cards", 0, 2), start(within(t), client(t, id, Config{}), "cards", 1, 2)
	if a, b := <-one, <-two; a.err != nil || b.err != nil {
		t.Error(a.err, b.err)
	}
	if took := time.Since(began); took > handshakeTime {
		t.Errorf("50 silent connections held the ranks up for %v", took)
	}
	s.strangers.mu.Lock()
	defer s.strangers.mu.Unlock()
	if n := s.strangers.queue.Len(); n > 8 || n != len(s.strangers.seats) {
		t.Errorf("%d strangers in 8 places, %d seats", n, len(s.strangers.seats))
	}
}

// TestSilentStrangerIsShownOut in virtual time: nobody holds a place for longer than a handshake takes.
func TestSilentStrangerIsShownOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, book := newPipes(), newLogbook()
		s := serve(network, Config{Log: book.logger()})
		began := time.Now()
		for range 3 {
			conn, err := network.dial(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("the server spoke first")
			}
			_ = conn.Close()
		}
		if took := time.Since(began); took != 3*handshakeTime {
			t.Errorf("three silent strangers took %v", took)
		}
		if lines := book.all(); len(lines) != 1 || !strings.HasPrefix(lines[0], "5s ") || !strings.Contains(lines[0], "count=1 ") {
			t.Errorf("the log: %q", lines)
		}
		time.Sleep(refusalPeriod) // virtual: the next one is worth a line again
		conn, err := network.dial(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("GET")); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
		synctest.Wait()
		if lines := book.all(); len(lines) != 2 || !strings.Contains(lines[1], "count=3 ") {
			t.Errorf("the log: %q", lines)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
