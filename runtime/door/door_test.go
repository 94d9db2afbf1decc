package door

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	quiet  = slog.New(slog.DiscardHandler)
	parlor = Room{1}
	secret = []byte("a secret of 16 bytes or more")
)

// entered is a connection that has entered a room.
type entered struct {
	about About
	conn  net.Conn
}

// listen opens a door on loopback, with a room; the test closes it at its end.
func listen(t *testing.T, log *slog.Logger) (*Door, <-chan entered) {
	t.Helper()
	d, err := Listen(t.Context(), "127.0.0.1:0", Plain, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // some tests have already closed it
	return d, open(t, d)
}

func open(t *testing.T, d *Door) <-chan entered {
	t.Helper()
	came := make(chan entered, 16)
	if !d.Add(parlor, secret, func(a About, c net.Conn) { came <- entered{a, c} }) {
		t.Fatal("the room was not added")
	}
	return came
}

// once makes Dial make only one attempt.
func once(err error) error { return err }

// dial opens a connection, which ends with the test.
func dial(t *testing.T, d *Door, h Hello) (net.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := Dial(ctx, d.Addr(), h, once)
	if conn != nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// mustEnter checks that a dialer with the secret gets in.
func mustEnter(t *testing.T, d *Door, came <-chan entered) {
	t.Helper()
	conn, err := dial(t, d, Hello{Room: parlor, About: About{5, 6}, Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	in := <-came
	defer in.conn.Close()
	if in.about != (About{5, 6}) {
		t.Errorf("it came about %v", in.about)
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(in.conn, b); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestWhoeverHasTheSecretEnters(t *testing.T) {
	d, came := listen(t, quiet)
	mustEnter(t, d, came)
	if d.Add(parlor, secret, nil) {
		t.Error("two rooms have one name")
	}
	for want, h := range map[error]Hello{
		ErrUnknown: {Room: Room{2}, Secret: secret},
		ErrSecret:  {Room: parlor, Secret: []byte("another secret")},
	} {
		if _, err := dial(t, d, h); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	d.Remove(parlor)
	if _, err := dial(t, d, Hello{Room: parlor, Secret: secret}); !errors.Is(err, ErrUnknown) {
		t.Errorf("a room that was removed: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil || d.Add(parlor, secret, nil) {
		t.Errorf("a closed door: %v, or it takes rooms", err)
	}
	if _, err := dial(t, d, Hello{Room: parlor, Secret: secret}); err == nil {
		t.Error("a closed door is open")
	}
}

func TestListenAtAnAddressThatIsTaken(t *testing.T) {
	d, _ := listen(t, quiet)
	if _, err := Listen(t.Context(), d.Addr(), Plain, quiet); err == nil ||
		!strings.Contains(err.Error(), "another program") {
		t.Errorf("%v", err)
	}
}

// shake runs the door's part against a dialer's messages, and returns the result.
func shake(t *testing.T, dialer func(net.Conn)) error {
	t.Helper()
	here, there := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer there.Close()
		dialer(there)
	})
	_, _, _, err := answer(here, Plain, func(Room) *room { return &room{secret: secret} })
	here.Close()
	wg.Wait()
	return err
}

// said collects what is written.
type said struct {
	net.Conn
	written *bytes.Buffer
}

func (s said) Write(p []byte) (int, error) {
	s.written.Write(p)
	return s.Conn.Write(p)
}

// Without the secret, no dialer gets in, even if it knows everything else; and recorded messages are useless a second
// time.
func TestProofs(t *testing.T) {
	h := Hello{Room: parlor, Secret: secret}
	var heard bytes.Buffer
	if err := shake(t, func(c net.Conn) {
		if _, err := greet(said{c, &heard}, h); err != nil {
			t.Errorf("a dialer with the secret got %v", err)
		}
	}); err != nil {
		t.Errorf("a dialer with the secret was refused: %v", err)
	}
	hello := slices.Clone(heard.Bytes()[:helloSize])
	for name, says := range map[string]func(challenge []byte) []byte{
		"a replay": func([]byte) []byte { return heard.Bytes()[helloSize:] },
		"another secret": func(challenge []byte) []byte {
			return proof([]byte("another"), "dialer", hello, challenge)
		},
		"the door's proof": func(challenge []byte) []byte { return proof(secret, "door", hello, challenge) },
		"the proof of another hello": func(challenge []byte) []byte {
			return proof(secret, "dialer", hello[1:], challenge)
		},
		"the challenge, said back":    func(challenge []byte) []byte { return challenge[:32] },
		"a proof that covers nothing": func([]byte) []byte { return proof(secret, "dialer", nil, nil) },
	} {
		if err := shake(t, func(c net.Conn) {
			_, _ = c.Write(hello)
			challenge, _ := readAnswer(c, challengeSize)
			_, _ = c.Write(says(challenge))
			if _, err := readAnswer(c, 32); !errors.Is(err, ErrSecret) {
				t.Errorf("%s was answered %v", name, err)
			}
		}); err == nil {
			t.Errorf("%s was let in", name)
		}
	}
	_ = shake(t, func(c net.Conn) {
		if _, err := greet(c, Hello{Room: parlor, Secret: []byte("another")}); !errors.Is(err, ErrSecret) {
			t.Errorf("a dialer whose door has another secret got %v", err)
		}
	})
}

// A dialer sends nothing more to a door that does not have the secret.
func TestDoorWithoutTheSecret(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	go func() {
		defer there.Close()
		_, _ = io.ReadFull(there, make([]byte, helloSize))
		_, _ = there.Write(append([]byte{welcome, version}, make([]byte, challengeSize)...))
		_, _ = io.ReadFull(there, make([]byte, 32))
		_, _ = there.Write(append([]byte{welcome, version}, make([]byte, 32)...))
	}()
	h := Hello{Room: parlor, Secret: secret, Dial: func(context.Context, string) (net.Conn, error) { return here, nil }}
	if _, err := Dial(t.Context(), "", h, once); !errors.Is(err, ErrSecret) {
		t.Errorf("%v", err)
	}
}

func TestOtherVersion(t *testing.T) {
	d, _ := listen(t, quiet)
	conn, err := net.Dial("tcp", d.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(append([]byte(magic), version+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := readAnswer(conn, challengeSize); !errors.Is(err, ErrVersion) ||
		!strings.Contains(err.Error(), fmt.Sprintf("there: %d", version)) {
		t.Errorf("a dialer of another version is answered %v", err)
	}
}

// logbook collects log lines with the time that has passed since it was made.
type logbook struct {
	mu    sync.Mutex
	start time.Time
	lines []string
}

func newLogbook() *logbook { return &logbook{start: time.Now()} }

func (l *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Write takes one line, without the time of the clock.
func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, line, _ := strings.Cut(strings.TrimSpace(string(p)), " ")
	l.lines = append(l.lines, fmt.Sprintf("%s %s", time.Since(l.start).Round(time.Second), line))
	return len(p), nil
}

func (l *logbook) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// TestGarbage sends what network ports typically receive. A dialer that does not speak the protocol is told nothing,
// and no such connection is kept.
func TestGarbage(t *testing.T) {
	book := newLogbook()
	d, came := listen(t, book.logger())
	random := make([]byte, 1<<12)
	_, _ = rand.Read(random)
	hello := func(change func([]byte)) string {
		b := append([]byte(magic), version)
		b = append(b, parlor[:]...)
		b = append(b, make([]byte, 16+1+nonceSize)...)
		change(b)
		return string(b)
	}
	plain := hello(func([]byte) {})
	garbage := map[string]string{
		"a port scan":                "",
		"an HTTP request":            "GET / HTTP/1.1\r\nHost: example\r\n\r\n",
		"a TLS hello":                "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"zeros":                      strings.Repeat("\x00", helloSize),
		"a hello cut off":            plain[:20],
		"a hello of another room":    hello(func(b []byte) { b[len(magic)+1]++ }),
		"a hello of another version": hello(func(b []byte) { b[len(magic)]++ }),
		"a hello and no proof":       plain,
		"a hello and half a proof":   plain + strings.Repeat("x", 16),
		"a hello and a wrong proof":  plain + strings.Repeat("x", 32),
		"random bytes":               string(random),
	}
	for name, text := range garbage {
		conn, err := net.Dial("tcp", d.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, text) // the door may have hung up by now, which is the point
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(handshakeTime / 2))
		answer, err := io.ReadAll(conn)
		if err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: the door holds on to it, having said %q", name, answer)
		}
		if !strings.HasPrefix(text, magic) && len(answer) > 0 {
			t.Errorf("%s: the door said %q", name, answer)
		}
		_ = conn.Close()
	}
	mustEnter(t, d, came)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	// No line is logged for connections that sent nothing, asked for an unknown room, or left before their proof.
	want := fmt.Sprintf("count=%d", len(garbage)-4)
	if lines := book.all(); len(lines) != 2 || !strings.Contains(lines[1], want) {
		t.Errorf("the refusals make these lines, not one at once and one of %s at the end: %q", want, lines)
	}
}

// TestCrowd fills every place with connections that send nothing. Others get in all the same.
func TestCrowd(t *testing.T) {
	d, came := listen(t, quiet)
	d.mu.Lock()
	d.places = 8
	d.mu.Unlock()
	for range 50 {
		conn, err := net.Dial("tcp", d.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	began := time.Now()
	mustEnter(t, d, came)
	if took := time.Since(began); took > handshakeTime {
		t.Errorf("50 silent connections held another up for %v", took)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.strangers.Len(); n > 8 {
		t.Errorf("%d strangers are in 8 places", n)
	}
}

// pipes is a listener for tests with virtual time.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4000} }

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.conns <- there
	return here
}

// TestSilentStrangerIsShownOut checks, in virtual time, that no stranger holds a place for longer than a handshake
// takes.
func TestSilentStrangerIsShownOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, book := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}, newLogbook()
		d := Open(network, Plain, book.logger())
		began := time.Now()
		for range 3 {
			conn := network.dial()
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("the door spoke first")
			}
			_ = conn.Close()
		}
		if took := time.Since(began); took != 3*handshakeTime {
			t.Errorf("three silent strangers took %v", took)
		}
		if lines := book.all(); len(lines) != 1 || !strings.HasPrefix(lines[0], "5s ") ||
			!strings.Contains(lines[0], "count=1 ") {
			t.Errorf("the log: %q", lines)
		}
		time.Sleep(refusalPeriod) // virtual time: the next one is logged again
		conn := network.dial()
		if _, err := conn.Write([]byte("GET")); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
		synctest.Wait()
		if lines := book.all(); len(lines) != 2 || !strings.Contains(lines[1], "count=3 ") {
			t.Errorf("the log: %q", lines)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}

// FuzzAnswer gives the door any input that a stranger may send: none of it gets in.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(magic))
	f.Add(append([]byte(magic), make([]byte, 200)...))
	f.Add(append(append([]byte(magic), version), make([]byte, 200)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		conn := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(b), io.Discard}
		if _, _, _, err := answer(conn, Plain, func(Room) *room { return &room{secret: secret} }); err == nil {
			t.Errorf("%x was let in", b)
		}
	})
}

// FuzzGreet gives a dialer any answer that a stranger may send: the dialer takes none for a door's.
func FuzzGreet(f *testing.F) {
	f.Add([]byte{welcome, version})
	f.Add([]byte{otherVersion, 9})
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		conn := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(b), io.Discard}
		if _, err := greet(conn, Hello{Room: parlor, Secret: secret}); err == nil {
			t.Errorf("%x was taken for a door", b)
		}
	})
}

// TestGoneAndSilent checks that the answer of the other host's kernel shows that a program has ended, and that no
// answer shows nothing.
func TestGoneAndSilent(t *testing.T) {
	failed := func(op string, errno syscall.Errno) error {
		return fmt.Errorf("door: %w", &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError("connect", errno)})
	}
	for _, c := range []struct {
		err          error
		gone, silent bool
	}{
		{failed("dial", syscall.ECONNREFUSED), true, false},
		{failed("dial", syscall.ECONNRESET), true, false}, // the program ended before it accepted
		{failed("dial", syscall.EHOSTUNREACH), false, true},
		{failed("dial", syscall.ETIMEDOUT), false, true},
		{failed("read", syscall.ECONNRESET), false, false},
		{ErrUnknown, true, false},
	} {
		if gone, silent := Gone(c.err), Silent(c.err); gone != c.gone || silent != c.silent {
			t.Errorf("%v: gone %v, silent %v, want %v and %v", c.err, gone, silent, c.gone, c.silent)
		}
	}
}
