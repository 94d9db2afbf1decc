package mesh

import (
	"context"
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
	bindTries    = 10
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
	strangers []*stream // the oldest first
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
		if err != nil {
			t.count.refuse(err)
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
		s := t.stream(conn)
		s.inbound, s.settled = true, func(err error) { t.settle(s, err) }
		t.mu.Lock()
		if t.strangers = append(t.strangers, s); len(t.strangers) > maxStrangers {
			t.count.Crowded.Add(1)
			_ = t.strangers[0].Close() // its reader finds out
			t.strangers = t.strangers[1:]
		}
		t.mu.Unlock()
		select {
		case t.streams <- s: // memberlist reads it, for StreamTimeout at most
		case <-t.ctx.Done():
			return // Shutdown closes it
		}
	}
}

// settle removes a stream from the strangers: its first record was read or refused.
func (t *transport) settle(s *stream, err error) {
	if err != nil {
		t.count.refuse(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.strangers, s); i >= 0 {
		t.strangers = slices.Delete(t.strangers, i, i+1)
	}
}

// stream is a connection as a stream of the job, which Shutdown closes.
func (t *transport) stream(conn net.Conn) *stream {
	return &stream{Conn: conn, seal: t.seal, stop: context.AfterFunc(t.ctx, func() { _ = conn.Close() })}
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

// DialTimeout connects, until the timeout or Shutdown.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	dialer := net.Dialer{Timeout: timeout}
	conn, err := dialer.DialContext(t.ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return t.stream(conn), nil
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
