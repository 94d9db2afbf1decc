package ncclras

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// server is NCCL's RAS as far as a client sees it. The test fails for anything that would crash a job: a connection or
// a command while a communicator is made, a second connection of the node, a CONTROL.
type server struct {
	t        testing.TB // nil in an example, where all is well
	listener net.Listener
	old      bool                                     // knows neither JSON nor MONITOR
	status   func(to io.Writer, gone <-chan struct{}) // what is answered to STATUS; then the connection ends
	behave   func(c net.Conn) bool                    // instead of the protocol, if it returns true
	silent   atomic.Int32                             // so many connections are accepted and not answered
	making   atomic.Bool                              // a communicator is being made
	events   chan string                              // for the client that monitors
	hangUp   chan struct{}                            // ends the connection of the client that monitors

	one      chan struct{} // holds one while there is a connection
	accepted atomic.Int32
	mu       sync.Mutex
	said     []string
	conns    []net.Conn
	busy     sync.WaitGroup
}

// start starts the server, until the test ends.
func (s *server) start(t *testing.T) *server {
	t.Helper()
	s.t = t
	if err := s.listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.end)
	return s
}

// ServeExample answers with a status, until end is called.
func ServeExample(status string) (address string, end func()) {
	s := &server{status: plays(status)}
	if err := s.listen(); err != nil {
		panic(err)
	}
	return s.listener.Addr().String(), s.end
}

func (s *server) listen() (err error) {
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	s.events, s.hangUp, s.one = make(chan string, 16), make(chan struct{}), make(chan struct{}, 1)
	s.busy.Go(func() {
		for {
			c, err := s.listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			s.busy.Go(func() { s.serve(c) })
		}
	})
	return nil
}

func (s *server) end() {
	_ = s.listener.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.busy.Wait()
}

// crash is what NCCL would do.
func (s *server) crash(why string) { s.t.Errorf("the job crashes: %s", why) }

func (s *server) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	s.accepted.Add(1)
	if s.making.Load() {
		s.crash("a connection while a communicator is made")
	}
	if s.silent.Add(-1) >= 0 { // a stopped process: the connection is the kernel's
		_, _ = io.Copy(io.Discard, c)
		return
	}
	select {
	case s.one <- struct{}{}: // the end of the one before may have to come first
	case <-time.After(10 * time.Second):
		s.crash("a second connection of the node")
		return
	}
	defer func() { <-s.one }()
	if s.behave != nil && s.behave(c) {
		return
	}
	s.protocol(c)
}

func (s *server) protocol(c net.Conn) {
	json := false
	in := bufio.NewScanner(c)
	for in.Scan() {
		line := in.Text()
		s.mu.Lock()
		s.said = append(s.said, line)
		s.mu.Unlock()
		if s.making.Load() {
			s.crash(line + " while a communicator is made")
		}
		command, rest, _ := strings.Cut(line, " ")
		switch {
		case command == "CLIENT":
			_, _ = fmt.Fprintln(c, "SERVER PROTOCOL 2")
		case command == "TIMEOUT":
			_, _ = fmt.Fprintln(c, "OK")
		case command == "SET" && !s.old:
			json = rest == "FORMAT json"
			_, _ = fmt.Fprintln(c, "OK")
		case line == "STATUS" && json:
			gone := make(chan struct{})
			s.busy.Go(func() {
				defer close(gone)
				_, _ = io.Copy(io.Discard, c)
			})
			s.status(c, gone)
			return
		case command == "MONITOR" && !s.old:
			_, _ = fmt.Fprintln(c, "OK")
			s.monitored(c)
			return
		case command == "CONTROL":
			s.crash(line)
		default:
			_, _ = fmt.Fprintf(c, "ERROR: Unknown command %s\n", line)
		}
	}
}

func (s *server) monitored(c net.Conn) {
	gone := make(chan struct{})
	s.busy.Go(func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, c)
	})
	for {
		select {
		case ev := <-s.events:
			_, _ = io.WriteString(c, ev)
		case <-s.hangUp:
			return
		case <-gone:
			return
		}
	}
}

func (s *server) heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.said)
}

// client is a client of the server, with a folder of its own unless cfg has one.
func (s *server) client(t *testing.T, cfg Config) *Client {
	t.Helper()
	cfg.Address = s.listener.Addr().String()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.Ranks == 0 {
		cfg.Ranks = 8
	}
	if cfg.Quiet == nil {
		cfg.Quiet = func() bool { return !s.making.Load() }
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.retry = time.Millisecond
	return c
}

// plays answers with a text.
func plays(text string) func(io.Writer, <-chan struct{}) {
	return func(to io.Writer, _ <-chan struct{}) { _, _ = io.WriteString(to, text) }
}

// endless answers with a text, and another one again and again.
func endless(text, again string) func(io.Writer, <-chan struct{}) {
	return func(to io.Writer, _ <-chan struct{}) {
		_, err := io.WriteString(to, text)
		for err == nil {
			_, err = io.WriteString(to, again)
		}
	}
}

// stuck answers with a text, and never ends.
func stuck(text string) func(io.Writer, <-chan struct{}) {
	return func(to io.Writer, gone <-chan struct{}) {
		_, _ = io.WriteString(to, text)
		<-gone
	}
}

// capture is an answer of NCCL 2.28.9.
func capture(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(string(b), "OK\n") // that is the answer to SET FORMAT
}
