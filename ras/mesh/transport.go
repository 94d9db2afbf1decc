package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Bounds on what strangers can cause.
const (
	// maxStream is the largest message on a stream, in bytes: a state exchange of 16,384 members, or answers.
	maxStream = 4 << 20
	// maxStrangers is how many streams may be open whose first message has not come whole; the oldest gives way.
	maxStrangers = 128
	// strangerTime is how long that may take.
	strangerTime = 2 * time.Second
	// strangerBytes is how much memory all of them together may hold.
	strangerBytes = 32 << 20
	// maxStreams is how many streams may be in memberlist's hands.
	maxStreams = 256
	bindTries  = 10
)

// transport is memberlist's Transport over one port, UDP and TCP, that lets through what the guard vouches for.
type transport struct {
	guard *guard
	count *counters
	udp   *net.UDPConn
	tcp   *net.TCPListener
	addr  netip.AddrPort // what others reach it by

	packets chan *memberlist.Packet
	streams chan net.Conn
	ctx     context.Context // ends with Shutdown, and with it whoever connects
	cancel  context.CancelFunc
	closing sync.Once
	running sync.WaitGroup

	mu        sync.Mutex
	strangers []*stranger           // in the order in which they came
	inbound   map[*net.TCPConn]bool // all that are open, to close them
	held      int                   // bytes of strangers' messages
}

// stranger is a stream whose first message has not come whole.
type stranger struct{ conn *net.TCPConn }

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// listen opens the port. A port of 0 takes a free one.
func listen(bind netip.AddrPort, advertise netip.Addr, g *guard, c *counters) (*transport, error) {
	t := &transport{
		guard: g, count: c, packets: make(chan *memberlist.Packet, 64), streams: make(chan net.Conn),
		inbound: make(map[*net.TCPConn]bool),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	// A free port of TCP may be taken for UDP.
	var err error
	for range bindTries {
		if t.tcp, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(bind)); err != nil {
			return nil, fmt.Errorf("mesh: listen at %v: %w", bind, err)
		}
		at := t.tcp.Addr().(*net.TCPAddr).AddrPort()
		if t.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); err == nil {
			t.addr = netip.AddrPortFrom(bind.Addr().Unmap(), at.Port())
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
	// The kernel may grant less, and it works with any size.
	_ = t.udp.SetReadBuffer(1 << 20)
	t.running.Add(2)
	go t.receive()
	go t.accept()
	return t, nil
}

func (t *transport) receive() {
	defer t.running.Done()
	buf := make([]byte, 1<<16)
	for {
		n, from, err := t.udp.ReadFromUDPAddrPort(buf)
		at := time.Now()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // an ICMP error of something sent before
			continue
		}
		t.count.packetsIn.Add(1)
		t.count.bytesIn.Add(uint64(n))
		if err := t.guard.packet(buf[:n]); err != nil {
			t.count.refuse(err)
			continue
		}
		p := &memberlist.Packet{Buf: append([]byte(nil), buf[:n]...), From: net.UDPAddrFromAddrPort(from), Timestamp: at}
		select {
		case t.packets <- p:
		case <-t.ctx.Done():
			return
		}
	}
}

func (t *transport) accept() {
	defer t.running.Done()
	for {
		conn, err := t.tcp.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: others of the process will give some back
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-t.ctx.Done():
				return
			}
		}
		s := &stranger{conn}
		t.mu.Lock()
		if len(t.inbound) >= maxStrangers+maxStreams && len(t.strangers) == 0 {
			t.mu.Unlock()
			t.count.crowded.Add(1)
			_ = conn.Close()
			continue
		}
		if len(t.strangers) >= maxStrangers {
			_ = t.strangers[0].conn.Close()
			t.strangers = t.strangers[1:]
			t.count.crowded.Add(1)
		}
		t.strangers = append(t.strangers, s)
		t.inbound[conn] = true
		t.mu.Unlock()
		t.running.Add(1)
		go func() {
			defer t.running.Done()
			t.admit(s)
		}()
	}
}

// admit reads a stream's first message and hands the stream to memberlist, if it is the job's.
func (t *transport) admit(s *stranger) {
	_ = s.conn.SetDeadline(time.Now().Add(strangerTime)) // a failure shows when reading
	first, err := t.first(s.conn)
	t.mu.Lock()
	for i, other := range t.strangers {
		if other == s {
			t.strangers = append(t.strangers[:i:i], t.strangers[i+1:]...)
			break
		}
	}
	t.held -= len(first)
	t.mu.Unlock()
	if err == nil {
		err = t.guard.stream(first)
	}
	stream := &inboundStream{TCPConn: s.conn, t: t, first: first}
	if err != nil {
		t.count.refuse(err)
		_ = stream.Close()
		return
	}
	t.count.streamsIn.Add(1)
	t.count.bytesIn.Add(uint64(len(first)))
	select {
	case t.streams <- stream:
	case <-t.ctx.Done():
		_ = stream.Close()
	}
}

// first reads the first message of a stream; what it holds is counted in held.
func (t *transport) first(conn *net.TCPConn) ([]byte, error) {
	header := make([]byte, t.guard.headerSize())
	if _, err := io.ReadFull(conn, header); err != nil {
		return nil, errStranger
	}
	sealed, err := t.guard.streamHeader(header, maxStream)
	if err != nil {
		return nil, err
	}
	// It grows as bytes come, so that a header alone costs nothing.
	const step = 64 << 10
	all := header
	if !t.hold(len(header)) {
		return nil, errTooLarge
	}
	for want := len(header) + sealed; len(all) < want; {
		n := min(step, want-len(all))
		if !t.hold(n) {
			return all, errTooLarge
		}
		from := len(all)
		all = append(all, make([]byte, n)...)
		if _, err := io.ReadFull(conn, all[from:]); err != nil {
			return all, errStranger
		}
	}
	return all, nil
}

func (t *transport) hold(n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held+n > strangerBytes {
		return false
	}
	t.held += n
	return true
}

// inboundStream gives the first message back, and nothing behind it: one message is all that a stream carries.
type inboundStream struct {
	*net.TCPConn
	t     *transport
	first []byte
}

func (s *inboundStream) Read(b []byte) (int, error) {
	if len(s.first) == 0 {
		return 0, io.EOF
	}
	n := copy(b, s.first)
	s.first = s.first[n:]
	return n, nil
}

func (s *inboundStream) Close() error {
	s.t.mu.Lock()
	delete(s.t.inbound, s.TCPConn)
	s.t.mu.Unlock()
	return s.TCPConn.Close()
}

// outboundStream bounds what the other side may answer.
type outboundStream struct {
	net.Conn
	left  int
	count *counters
	stop  func() bool // the transport's Shutdown doesn't close it any more
}

func (s *outboundStream) Read(b []byte) (int, error) {
	if s.left <= 0 {
		return 0, errTooLarge
	}
	n, err := s.Conn.Read(b[:min(len(b), s.left)])
	s.left -= n
	s.count.bytesIn.Add(uint64(n))
	return n, err
}

func (s *outboundStream) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	s.count.bytesOut.Add(uint64(n))
	return n, err
}

func (s *outboundStream) Close() error {
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
	t.count.packetsOut.Add(1)
	t.count.bytesOut.Add(uint64(len(b)))
	_, err = t.udp.WriteToUDPAddrPort(b, to)
	return time.Now(), err
}

func (t *transport) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, addr.Addr)
}

// DialTimeout connects, until the timeout or Shutdown.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	dialer := net.Dialer{Timeout: timeout}
	conn, err := dialer.DialContext(t.ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(t.ctx, func() { _ = conn.Close() })
	return &outboundStream{conn, maxStream, t.count, stop}, nil
}

func (t *transport) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(addr.Addr, timeout)
}

func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// Shutdown closes the port and all streams, also those that are being opened, and waits for the goroutines.
func (t *transport) Shutdown() error {
	t.closing.Do(func() {
		t.cancel()
		_ = t.tcp.Close()
		_ = t.udp.Close()
		t.mu.Lock()
		for conn := range t.inbound {
			_ = conn.Close()
		}
		t.mu.Unlock()
	})
	t.running.Wait()
	return nil
}
