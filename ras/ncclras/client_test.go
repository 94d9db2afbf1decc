package ncclras

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var byString = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

var newest = Version{2, 31, 2}

func TestStatus(t *testing.T) {
	for _, cfg := range []Config{{Version: newest}, {Version: Version{2, 28, 9}, Accept: []int{1762, 1996}}} {
		s := (&server{status: plays(capture(t, "rank-skipped-allreduce.json"))}).start(t)
		got, err := s.client(t, cfg).Status(t.Context())
		if err != nil || got.Cut != nil || got.Damage != nil || len(got.Comms) == 0 {
			t.Fatalf("%v: %v, %+v", cfg.Version, err, got)
		}
		want := []string{"CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json", "STATUS"}
		if said := s.heard(); !slices.Equal(said, want) {
			t.Errorf("%v was asked %q; want %q", cfg.Version, said, want)
		}
	}
}

// TestBugs has the versions that are known to crash when they are asked, and the bugs that forbid it.
func TestBugs(t *testing.T) {
	for _, test := range []struct {
		version string
		ranks   int
		accept  []int
		issues  []int // none: it may be asked
		old     bool
	}{
		{version: "2.26.5", old: true},
		{version: "2.28.3", accept: []int{1762, 1996}, old: true},
		{version: "2.28.7", issues: []int{1762, 1996}},
		{version: "nccl 2.28.9", accept: []int{1762}, issues: []int{1996}},
		{version: "2.28.9+cuda13.0", accept: []int{1762, 1996}},
		{version: "2.29.2", ranks: 255},
		{version: "2.29.2", ranks: 256, issues: []int{2346}},
		{version: "2.29.7", issues: []int{2346}}, // nobody knows how many ranks
		{version: "2.31.2", ranks: 1024, accept: []int{2346}},
		{version: "3.0.0", ranks: 1024, issues: []int{2346}},
	} {
		v, err := ParseVersion(test.version)
		if err != nil {
			t.Fatal(err)
		}
		_, err = New(Config{
			Version: v, Ranks: test.ranks, Accept: test.accept, Dir: t.TempDir(), Quiet: func() bool { return true },
		})
		var issues []int
		if bug := (*BugError)(nil); errors.As(err, &bug) {
			for _, b := range bug.Bugs {
				issues = append(issues, b.Issue)
			}
		}
		if !slices.Equal(issues, test.issues) || errors.Is(err, ErrOld) != test.old ||
			(err == nil) != (issues == nil && !test.old) {
			t.Errorf("NCCL %s, %d ranks, accept %v: %v; want issues %v, old %v",
				test.version, test.ranks, test.accept, err, test.issues, test.old)
		}
	}
}

// TestNotAsked: there is no connection while a communicator is made, and none for MONITOR to a version that doesn't
// know it.
func TestNotAsked(t *testing.T) {
	s := (&server{}).start(t)
	old := s.client(t, Config{Version: Version{2, 28, 9}, Accept: []int{1762, 1996}})
	var refused *RefusedError
	if err := old.Monitor(t.Context(), func(Event) {}); !errors.As(err, &refused) {
		t.Errorf("monitor: %v", err)
	}
	s.making.Store(true)
	for _, c := range []*Client{old, s.client(t, Config{Version: newest})} {
		if _, err := c.Status(t.Context()); !errors.Is(err, ErrNotQuiet) {
			t.Errorf("status of %v while a communicator is made: %v", c.cfg.Version, err)
		}
	}
	if n := s.accepted.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

// TestQuietEnds: if communicators begin to be made while the client connects, the attempt ends before it asks.
func TestQuietEnds(t *testing.T) {
	for _, left := range []int{1, 2} { // before the connection, before the command
		s := (&server{status: plays(capture(t, "healthy.json"))}).start(t)
		calls := 0
		c := s.client(t, Config{Version: newest, Quiet: func() bool {
			calls++
			return calls <= left
		}})
		if _, err := c.Status(t.Context()); !errors.Is(err, ErrNotQuiet) {
			t.Errorf("after %d looks: %v", left, err)
		}
		if slices.Contains(s.heard(), "STATUS") {
			t.Errorf("after %d looks it was asked", left)
		}
	}
}

// The kernel gives a connection to any process of the node, also to one that is stopped.
func TestStoppedProcesses(t *testing.T) {
	s := (&server{status: plays(capture(t, "healthy.json"))}).start(t)
	c := s.client(t, Config{Version: newest})
	c.handshake = 100 * time.Millisecond
	s.silent.Store(attempts)
	if _, err := c.Status(t.Context()); !errors.Is(err, errSilent) || s.accepted.Load() != attempts {
		t.Errorf("%v after %d attempts", err, s.accepted.Load())
	}
	s.silent.Store(1)
	c.handshake = 30 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Status(ctx); err == nil {
		t.Error("a status of a process that doesn't answer")
	}
}

func TestAnotherAttempt(t *testing.T) {
	s := (&server{status: plays(capture(t, "healthy.json"))}).start(t)
	c := s.client(t, Config{Version: newest})
	c.handshake = time.Second
	s.silent.Store(1)
	if _, err := c.Status(t.Context()); err != nil || s.accepted.Load() != 2 {
		t.Errorf("%v after %d attempts", err, s.accepted.Load())
	}
}

// TestMisbehaviour: whatever answers, the client comes back in time and with bounded memory, and keeps the complete
// parts.
func TestMisbehaviour(t *testing.T) {
	healthy, stopped := capture(t, "healthy.json"), capture(t, "stopped-1s.json")
	half := healthy[:len(healthy)/2]
	rank := `{"rank": 1852139639, "host": "unknown", "pid": -1},`
	random := `{"nccl_version": "2.28.9", "communicators": [{"hash": "0x7", "size": 4, "ranks": [`
	say := func(text string) func(net.Conn) bool {
		return func(c net.Conn) bool {
			_, _ = io.WriteString(c, text)
			_, _ = io.Copy(io.Discard, c)
			return true
		}
	}
	for name, test := range map[string]struct {
		behave func(net.Conn) bool
		status func(io.Writer, <-chan struct{})
		says   string // of the error, or of Cut
		comms  int
		cut    bool
	}{
		"closes":         {behave: func(net.Conn) bool { return true }, says: "NCCL's RAS at"},
		"another server": {behave: say("HTTP/1.1 400 Bad Request\r\n\r\n"), says: "HTTP/1.1"},
		"half a line":    {behave: say("SERVER PROT"), says: "doesn't answer"},
		"a long line":    {behave: say(strings.Repeat("x", 2000)), says: "more than 1024 bytes"},
		"nothing":        {status: plays(""), says: "EOF"},
		"text":           {status: plays("NCCL version 2.31.2 compiled with CUDA 13.0\n"), says: "it begins"},
		"garbage":        {status: plays("{\x00\xff{{{"), says: "no version"},
		"half a status":  {status: plays(half), comms: 2, cut: true, says: "EOF"},
		"never ends":     {status: stuck(half), comms: 2, cut: true, says: "in time"},
		"no commas":      {status: plays(stopped), comms: 5},
		"more follows":   {status: endless(healthy, healthy), comms: 5},
		"random ranks":   {status: plays(random + strings.Repeat(rank, 10_000)), cut: true, says: "EOF"},
		"endless ranks":  {status: endless(random, rank), cut: true, says: "too long"},
		"one long name":  {status: endless(`{"nccl_version": "`, "xxxxxxxx"), says: "too long"},
		"deep":           {status: endless(`{"nccl_version": "", "x": `, "["), cut: true, says: "depth"},
	} {
		t.Run(name, func(t *testing.T) {
			s := (&server{behave: test.behave, status: test.status}).start(t)
			c := s.client(t, Config{Version: newest})
			c.maxBytes, c.timeout = 1<<20, time.Second
			if test.says == "doesn't answer" {
				c.handshake = 50 * time.Millisecond
			}
			if name == "never ends" {
				c.timeout, c.extra = 0, 500*time.Millisecond
			}
			got, err := c.Status(t.Context())
			switch {
			case test.cut || test.says == "":
				if err != nil || len(got.Comms) != test.comms || got.Damage != nil || (got.Cut != nil) != test.cut ||
					test.cut && !strings.Contains(got.Cut.Error(), test.says) {
					t.Errorf("%v, %+v", err, got)
				}
			case err == nil || !strings.Contains(err.Error(), test.says):
				t.Errorf("%v, %+v; want an error that says %s", err, got, test.says)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	s := (&server{old: true}).start(t)
	c := s.client(t, Config{Version: newest})
	var refused *RefusedError
	if _, err := c.Status(t.Context()); !errors.As(err, &refused) || refused.Command != "SET FORMAT json" {
		t.Errorf("status: %v", err)
	}
	if err := c.Monitor(t.Context(), func(Event) {}); !errors.As(err, &refused) {
		t.Errorf("monitor: %v", err)
	}
	for _, line := range s.heard() {
		if strings.HasSuffix(line, "STATUS") {
			t.Errorf("it was asked %s all the same", line)
		}
	}
}

// A node has one connection, and a process one status every five seconds, whoever asks.
func TestOneConnection(t *testing.T) {
	dir := t.TempDir()
	asked, answer := make(chan struct{}), make(chan struct{})
	s := (&server{status: func(to io.Writer, _ <-chan struct{}) {
		close(asked)
		<-answer
		_, _ = io.WriteString(to, capture(t, "healthy.json"))
	}}).start(t)
	first, second := s.client(t, Config{Version: newest, Dir: dir}), s.client(t, Config{Version: newest, Dir: dir})
	done := make(chan error)
	go func() {
		_, err := first.Status(t.Context())
		done <- err
	}()
	<-asked
	if _, err := second.Status(t.Context()); !errors.Is(err, ErrHeld) {
		t.Errorf("while another one asks: %v", err)
	}
	close(answer)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := first.Status(t.Context()); !errors.Is(err, ErrTooSoon) {
		t.Errorf("a moment later: %v", err)
	}
	s.status = plays(capture(t, "healthy.json"))
	second.next = time.Time{}
	if _, err := second.Status(t.Context()); err != nil {
		t.Errorf("another one, a moment later: %v", err)
	}
}

// TestLockIsNoLink: a folder that is a link to another place is not locked.
func TestLockIsNoLink(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	s := (&server{}).start(t)
	c := s.client(t, Config{Version: newest, Dir: link})
	if _, err := c.Status(t.Context()); err == nil || s.accepted.Load() > 0 {
		t.Errorf("%v, %d connections", err, s.accepted.Load())
	}
}

// watcher runs a Monitor, and returns its events.
func watcher(t *testing.T, c *Client) (events chan Event, end func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	events = make(chan Event, 64)
	done := make(chan error, 1)
	go func() { done <- c.Monitor(ctx, func(ev Event) { events <- ev }) }()
	return events, func() error {
		cancel()
		return <-done
	}
}

func expect(t *testing.T, events chan Event, name string) Event {
	t.Helper()
	ev := <-events
	if ev.Name != name {
		t.Fatalf("event %v, want %s", ev, name)
	}
	return ev
}

func TestMonitor(t *testing.T) {
	s := (&server{}).start(t)
	c := s.client(t, Config{Version: newest})
	events, end := watcher(t, c)
	expect(t, events, Watching)
	if said := s.heard(); said[len(said)-1] != "MONITOR lifecycle,trace" {
		t.Errorf("it was asked %v", said)
	}
	s.making.Store(true) // who listens may go on
	s.events <- "{\n  \"event\": \"PEER_NEW\",\n  \"peer\": {\n    \"host\": \"10.0.0.1\",\n    \"pid\": 7\n  }\n}\n"
	if ev := expect(t, events, PeerNew); ev.Process != (Process{addr("10.0.0.1"), 7}) {
		t.Errorf("event of %v", ev.Process)
	}
	s.making.Store(false)
	s.hangUp <- struct{}{}
	expect(t, events, Lost)
	expect(t, events, Watching)
	if err := end(); err != nil {
		t.Errorf("Monitor: %v", err)
	}
	expect(t, events, Lost)
}

// A monitor waits until it is quiet, and has the lock, before it connects.
func TestMonitorWaits(t *testing.T) {
	s := (&server{}).start(t)
	s.making.Store(true)
	looks := make(chan struct{}, 1000)
	c := s.client(t, Config{Version: newest, Quiet: func() bool {
		select {
		case looks <- struct{}{}:
		default:
		}
		return !s.making.Load()
	}})
	release, err := lockNode(c.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	events, end := watcher(t, c)
	for range 3 {
		<-looks
	}
	s.making.Store(false)
	for range 3 {
		<-looks
	}
	if n := s.accepted.Load(); n != 0 {
		t.Errorf("%d connections without the lock", n)
	}
	release()
	expect(t, events, Watching)
	if err := end(); err != nil {
		t.Errorf("Monitor: %v", err)
	}
}

// TestStatusInterruptsListen: a status takes the connection of a client that listens. The client listens again
// afterwards.
func TestStatusInterruptsListen(t *testing.T) {
	s := (&server{status: plays(capture(t, "healthy.json"))}).start(t)
	c := s.client(t, Config{Version: newest})
	c.interval = 0
	events := make(chan Event, 64)
	c.Listen(func(ev Event) { events <- ev })
	defer c.Close()
	expect(t, events, Watching)
	for range 3 {
		if got, err := c.Status(t.Context()); err != nil || got.Cut != nil {
			t.Fatalf("%v, %+v", err, got)
		}
		expect(t, events, Lost)
		expect(t, events, Watching)
	}
	c.interval = time.Hour
	if _, err := c.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, events, Lost)
	expect(t, events, Watching)
	before := s.accepted.Load()
	if _, err := c.Status(t.Context()); !errors.Is(err, ErrTooSoon) {
		t.Errorf("a moment later: %v", err)
	}
	if after := s.accepted.Load(); after != before || len(events) > 0 {
		t.Errorf("a status that is not asked costs %d connections", after-before)
	}
}

func TestValidate(t *testing.T) {
	good := Config{Version: newest, Quiet: func() bool { return true }, Ranks: 8, Dir: "/tmp"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for field, spoil := range map[string]func(*Config){
		"Version": func(c *Config) { c.Version = Version{} },
		"Ranks":   func(c *Config) { c.Ranks = -1 },
		"Quiet":   func(c *Config) { c.Quiet = nil },
		"Dir":     func(c *Config) { c.Dir = "job" },
		"Address": func(c *Config) { c.Address = "localhost" },
		"Accept":  func(c *Config) { c.Accept = []int{1} },
	} {
		c := good
		spoil(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "Config."+field+" ") {
			t.Errorf("%s: %v", field, err)
		}
		if _, err := New(c); err == nil {
			t.Errorf("%s: New takes it", field)
		}
	}
	t.Setenv("NCCL_RAS_ADDR", "[::1]:1234")
	if got := good.withDefaults().Address; got != "[::1]:1234" {
		t.Errorf("address %s", got)
	}
	t.Setenv("NCCL_RAS_ADDR", "")
	if got := good.withDefaults().Address; got != DefaultAddress {
		t.Errorf("address %s", got)
	}
}

func TestParseVersion(t *testing.T) {
	for _, text := range []string{"", "2", "2.28", "host", "2.-1.3", "2.28.99999999999999999999", "nccl"} {
		if v, err := ParseVersion(text); err == nil {
			t.Errorf("%q is %v", text, v)
		}
	}
}
