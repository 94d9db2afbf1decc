package mesh

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// loopback starts a mesh on loopback on a host of its own, as far as it knows, so that several fit in one process.
func loopback(t *testing.T, host string, change func(*Config)) *Mesh {
	t.Helper()
	self, err := Self(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	self.Host, self.Name = host, nameOf(host, self.PID)
	c := Config{Self: self, Secret: make([]byte, SecretSize), Job: "loopback", Tuning: LAN()}
	if change != nil {
		change(&c)
	}
	m, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// eventually waits until ok, and fails after ten seconds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(10 * time.Second); !ok(); <-ticker.C {
		if time.Now().After(end) {
			t.Fatalf("after 10 s not: %s", what)
		}
	}
}

// port is a transport on loopback.
func port(t *testing.T, job string, c *Stats) *transport {
	t.Helper()
	s, err := newSeal(make([]byte, SecretSize), job)
	if err != nil {
		t.Fatal(err)
	}
	under, err := listen(netip.MustParseAddrPort("127.0.0.1:0"), netip.Addr{}, s, c)
	if err != nil {
		t.Fatal(err)
	}
	return under
}

// recorder is a transport that keeps packets, not sealed yet, and what goes over its streams.
type recorder struct {
	*transport
	packets chan []byte
	streams chan []byte
}

func (r recorder) DialTimeout(addr string, d time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, d)
	if err != nil {
		return nil, err
	}
	return r.stream(tls.Client(recordedConn{conn, r}, r.seal.tls)), nil
}

type recordedConn struct {
	net.Conn
	r recorder
}

func (c recordedConn) Write(b []byte) (int, error) {
	select {
	case c.r.streams <- slices.Clone(b):
	default:
	}
	return c.Conn.Write(b)
}

func (r recorder) WriteTo(b []byte, addr string) (time.Time, error) {
	select {
	case r.packets <- slices.Clone(b):
	default:
	}
	return r.transport.WriteTo(b, addr)
}

// TestStrangersAndReplays: data from strangers and replays are counted and have no effect: two members go on.
func TestStrangersAndReplays(t *testing.T) {
	var events atomic.Int64
	a := loopback(t, "a", func(c *Config) { c.OnEvent = func(Event) { events.Add(1) } })
	var count Stats
	rec := recorder{port(t, "loopback", &count), make(chan []byte, 100), make(chan []byte, 100)}
	b := loopback(t, "b", func(c *Config) { c.Transport = rec })
	if _, err := b.Join(t.Context(), a.Self().Addr); err != nil {
		t.Fatal(err)
	}
	packet := rec.seal.packet(<-rec.packets)
	addr := a.Self().Addr.String()
	udp, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = udp.Close() }()
	stats := a.Stats()
	strangers, replays := stats.Strangers.Load(), stats.Replays.Load()
	other := loopback(t, "c", func(c *Config) { c.Secret = bytes.Repeat([]byte{1}, SecretSize) })
	if n, err := other.list.Join([]string{addr}); err == nil {
		t.Errorf("with another secret %d members were joined", n)
	}
	sent := uint64(1) // the stream with another secret
	send := func(p []byte) {
		if _, err := udp.Write(p); err != nil {
			t.Fatal(err)
		}
		sent++
	}
	for n := range len(packet) { // cut short
		send(packet[:n])
	}
	for i := range packet { // a bit is wrong
		p := slices.Clone(packet)
		p[i] ^= 1
		send(p)
	}
	var heard []byte // of a stream
	for len(rec.streams) > 0 {
		heard = append(heard, <-rec.streams...)
	}
	for _, p := range [][]byte{
		nil, // a port scan
		[]byte("GET / HTTP/1.1\r\n\r\n"), []byte("\x16\x03\x01\xff\xff\x01"), heard, heard[:len(heard)/2],
	} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(p) // it may be closed before all is written
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.ReadAll(conn) // until it is closed
		_ = conn.Close()
		sent++
	}
	theirs := other.transport.(*transport).seal.tls.Certificates
	for name, certificates := range map[string][]tls.Certificate{"no key": nil, "the key of another job": theirs} {
		conn, err := tls.Dial("tcp", addr, &tls.Config{Certificates: certificates, InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err) // it learns later that it is refused
		}
		if n, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("a stream with %s read %d bytes, %v; want that it is refused", name, n, err)
		}
		_ = conn.Close()
		sent++
	}
	eventually(t, "all strangers are counted", func() bool {
		// Loopback drops packets when its buffer is full.
		return stats.Strangers.Load()-strangers >= sent*9/10
	})
	if got := stats.Strangers.Load() - strangers; got > sent {
		t.Errorf("%d strangers were counted, %d were there", got, sent)
	}

	for range 11 { // the first is as good as any
		send(packet)
	}
	eventually(t, "replays are counted", func() bool { return stats.Replays.Load()-replays >= 9 })
	if n := len(a.Members()); n != 2 {
		t.Errorf("a holds %d members, want 2", n)
	}
	if st, _ := a.Member(b.Self().Name); st.State != Alive {
		t.Errorf("b is %v, want alive", st.State)
	}
	if n := events.Load(); n != 1 {
		t.Errorf("a was told %d events, want that b joined", n)
	}
}

// TestMembersTellWhereTheirHealthIs: the others know a member's health endpoint.
func TestMembersTellWhereTheirHealthIs(t *testing.T) {
	const url = "http://10.0.0.7:9400"
	a := loopback(t, "a", nil)
	b := loopback(t, "b", func(c *Config) { c.Self.Health = url })
	if _, err := b.Join(t.Context(), a.Self().Addr); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a knows b", func() bool { _, ok := a.Member(b.Self().Name); return ok })
	if st, _ := a.Member(b.Self().Name); st.Member.Health != url {
		t.Errorf("a knows %q, want %q", st.Member.Health, url)
	}
	if st, _ := b.Member(a.Self().Name); st.Member.Health != "" {
		t.Errorf("b knows %q of who has none", st.Member.Health)
	}
}

// Connections on which nothing comes are closed when there are too many, the oldest first, and members still get in.
func TestHalfOpenConnectionsKeepNobodyOut(t *testing.T) {
	a := loopback(t, "a", nil)
	var idle []net.Conn
	defer func() {
		for _, c := range idle {
			_ = c.Close()
		}
	}()
	for range 3 * maxStrangers {
		c, err := net.Dial("tcp", a.Self().Addr.String())
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
	}
	b := loopback(t, "b", nil)
	if _, err := b.Join(t.Context(), a.Self().Addr); err != nil {
		t.Fatal(err)
	}
	if _, err := idle[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the oldest connection reads %v, want that it was closed", err)
	}
	if n := a.Stats().Crowded.Load(); n < maxStrangers {
		t.Errorf("%d connections gave way, want at least %d", n, maxStrangers)
	}
	a.transport.(*transport).mu.Lock()
	n := len(a.transport.(*transport).strangers)
	a.transport.(*transport).mu.Unlock()
	if n > maxStrangers {
		t.Errorf("%d connections of strangers are open, want at most %d", n, maxStrangers)
	}
}

// A message of the job that can't be read is counted.
func TestMalformedMessages(t *testing.T) {
	a := loopback(t, "a", nil)
	d := &delegate{a}
	messages := [][]byte{
		nil,
		{wireVersion},
		{wireVersion + 1, msgFate},
		{wireVersion, 99},
		{wireVersion, msgFate},
		{wireVersion, msgCheck},
		{wireVersion, msgQuestion, 1},
		{wireVersion, msgAnswers, 1},
		encode(msgQuestion, sampleQuestion), // of somebody else
	}
	for _, b := range messages {
		d.NotifyMsg(b)
	}
	d.MergeRemoteState([]byte{wireVersion, 200}, false)
	if err := d.NotifyAlive(&memberlist.Node{Name: "a-1", Meta: []byte{9}}); err == nil {
		t.Error("a node without metadata was let in")
	}
	liar := memberAt("b", 1)
	if err := d.NotifyAlive(&memberlist.Node{
		Name: "c-9", Addr: net.IP{127, 0, 0, 1},
		Meta: encodeMeta(&liar),
	}); err == nil {
		t.Error("a node that calls itself otherwise was let in")
	}
	if got, want := a.Stats().Malformed.Load(), uint64(len(messages)+3); got != want {
		t.Errorf("%d malformed messages were counted, want %d", got, want)
	}
}
