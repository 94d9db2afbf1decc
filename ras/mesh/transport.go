package mesh

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// maxStrangers bounds the open streams that have not authenticated yet; the oldest is closed for a new one.
	maxStrangers = 128
	// handshakeTime is how long a stream may take to authenticate.
	handshakeTime = 5 * time.Second
	bindTries     = 10
)

// transport is memberlist's Transport over one port, UDP and TCP, sealed. With memberlist's own transport and
// encryption, a replayed packet with another version in its header makes the process panic, each packet takes 64 KiB,
// and strangers can open any number of streams of 20 MiB each.
type transport struct {
	seal  *seal
	count *Stats
	udp   *net.UDPConn
	tcp   *net.TCPListener
	addr  netip.AddrPort // that others reach it at

	packets chan *memberlist.Packet
	streams chan net.Conn
	ctx     context.Context // ends with Shutdown, and with it all attempts to connect
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	strangers []net.Conn // the oldest first
}

// listen opens the port. A port of 0 takes a free one.
func listen(bind netip.AddrPort, advertise netip.Addr, s *seal, c *Stats) (*transport, error) {
	t := &transport{
		seal: s, count: c, packets: make(chan *memberlist.Packet, 64), streams: make(chan net.Conn),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	// A free port of TCP may be taken for UDP.
	var err error
	for range bindTries {
		if t.tcp, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(bind)); err != nil {
			break
		}
		at := t.tcp.Addr().(*net.TCPAddr).AddrPort()
		t.addr = netip.AddrPortFrom(bind.Addr().Unmap(), at.Port())
		if t.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); err == nil {
			break
		}
		_ = t.tcp.Close()
		if bind.Port() != 0 {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("mesh: listen at %v: %w", bind, err)
	}
	if advertise.IsValid() {
		t.addr = netip.AddrPortFrom(advertise.Unmap(), t.addr.Port())
	}
	// The kernel may grant less; any size works.
	_ = t.udp.SetReadBuffer(1 << 20)
	t.running.Go(t.receive)
	t.running.Go(t.accept)
	return t, nil
}

func (t *transport) receive() {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := t.udp.ReadFromUDPAddrPort(buf)
		at := time.Now()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // an ICMP error about an earlier packet
			continue
		}
		b, err := t.seal.openPacket(buf[:n])
		switch {
		case errors.Is(err, errReplay):
			t.count.Replays.Add(1)
			continue
		case err != nil:
			t.count.Strangers.Add(1)
			continue
		}
		select {
		case t.packets <- &memberlist.Packet{Buf: b, From: net.UDPAddrFromAddrPort(from), Timestamp: at}:
		case <-t.ctx.Done():
			return
		}
	}
}

func (t *transport) accept() {
	for {
		conn, err := t.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, for now
			pause(t.ctx, 50*time.Millisecond)
			continue
		}
		t.mu.Lock()
		if t.strangers = append(t.strangers, conn); len(t.strangers) > maxStrangers {
			t.count.Crowded.Add(1)
			_ = t.strangers[0].Close() // its handshake fails
			t.strangers = t.strangers[1:]
		}
		t.mu.Unlock()
		t.running.Go(func() { t.admit(conn) })
	}
}

// admit passes a connection on to memberlist, if its other side proves in time that it is of the job.
func (t *transport) admit(conn net.Conn) {
	ctx, cancel := context.WithTimeout(t.ctx, handshakeTime)
	defer cancel()
	s := tls.Server(conn, t.seal.tls)
	err := s.HandshakeContext(ctx)
	t.mu.Lock()
	i := slices.Index(t.strangers, conn)
	if i >= 0 {
		t.strangers = slices.Delete(t.strangers, i, i+1)
	}
	t.mu.Unlock()
	if err != nil {
		if i >= 0 && t.ctx.Err() == nil { // else it was closed here
			t.count.Strangers.Add(1)
		}
		_ = conn.Close()
		return
	}
	select {
	case t.streams <- t.stream(s): // memberlist reads it, for StreamTimeout at most
	case <-t.ctx.Done():
		_ = conn.Close()
	}
}

// stream is a connection between members, which Shutdown closes.
type stream struct {
	*tls.Conn
	stop func() bool
}

func (t *transport) stream(c *tls.Conn) stream {
	return stream{c, context.AfterFunc(t.ctx, func() { _ = c.NetConn().Close() })}
}

// Close closes the connection.
func (s stream) Close() error {
	s.stop()
	return s.Conn.Close()
}

func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.addr.Addr().AsSlice(), int(t.addr.Port()), nil
}

func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return time.Time{}, fmt.Errorf("mesh: send: %w", err)
	}
	_, err = t.udp.WriteToUDPAddrPort(t.seal.packet(b), to)
	return time.Now(), err
}

// DialTimeout connects to a member, until the timeout or Shutdown.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	dialer := tls.Dialer{Config: t.seal.tls}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return t.stream(conn.(*tls.Conn)), nil
}

func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// Shutdown closes the port and all streams, also those that are being opened, and waits for the goroutines.
func (t *transport) Shutdown() error {
	t.cancel()
	_ = t.tcp.Close()
	_ = t.udp.Close()
	t.running.Wait()
	return nil
}
