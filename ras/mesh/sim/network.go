package sim

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// Link is what happens to packets between machines. Within a machine nothing is lost.
type Link struct {
	Delay  time.Duration // of each packet, one way
	Jitter time.Duration // added to Delay: from 0 to this, evenly
	Loss   float64       // the share of packets that are lost: 0 to 1
	Local  time.Duration // the delay within a machine, plus up to half as much
}

// Network connects machines. Its methods may be called from any goroutine.
type Network struct {
	seed     uint64
	began    time.Time
	mu       sync.Mutex
	link     Link
	port     map[netip.AddrPort]*port
	cut      map[[2]*Machine]bool
	arrivals moments
	packets  uint64
	bytes    uint64
}

// newNetwork makes a network without machines. The seed determines what happens to a packet by its ends and its time.
func newNetwork(seed uint64, link Link) *Network {
	return &Network{
		seed: seed, began: time.Now(), link: link,
		port: make(map[netip.AddrPort]*port), cut: make(map[[2]*Machine]bool),
	}
}

// SetLink changes what happens to packets from now on.
func (n *Network) SetLink(l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link = l
}

// Cut disconnects two machines, or connects them again.
func (n *Network) Cut(a, b *Machine, apart bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[[2]*Machine{a, b}], n.cut[[2]*Machine{b, a}] = apart, apart
}

// Traffic is how many packets and bytes of payload were sent so far. The bytes include those of streams.
func (n *Network) Traffic() (packets, bytes uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.packets, n.bytes
}

// way is how long a packet takes from one process to another, and whether it arrives. No two arrive at one time.
func (n *Network) way(from, to *Process, size int, packet bool) (time.Duration, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bytes += uint64(size)
	if packet {
		n.packets++
	}
	chance := n.chance(from, to)
	if from.machine == to.machine {
		return n.arrivals.next(n.link.Local + time.Duration(chance.Int64N(int64(n.link.Local/2)+1))), true
	}
	if n.cut[[2]*Machine{from.machine, to.machine}] || packet && chance.Float64() < n.link.Loss {
		return 0, false
	}
	delay := n.link.Delay
	if n.link.Jitter > 0 {
		delay += time.Duration(chance.Int64N(int64(n.link.Jitter)))
	}
	return n.arrivals.next(delay), true
}

// chance is the randomness for what one process sends to another now. It depends on nothing that was sent before, so
// that two runs that differ by a packet need not differ in all later ones.
func (n *Network) chance(from, to *Process) *mathrand.Rand {
	last, now := from.sent[to], time.Since(n.began)
	count := last.next(now)
	from.sent[to] = last
	link := mathrand.NewPCG(n.seed, from.id<<idBits|to.id).Uint64()
	return mathrand.New(mathrand.NewPCG(link^count, uint64(now)))
}

// sent is when something was last sent or drawn, and how often at that time.
type sent struct {
	at    time.Duration
	count uint64
}

// next counts what is sent or drawn now.
func (s *sent) next(now time.Duration) uint64 {
	if s.at != now {
		*s = sent{at: now}
	}
	s.count++
	return s.count
}

// A process's id holds its machine's and its number there.
const (
	processBits = 12
	idBits      = 2 * processBits
)

// port is a process's port on the network: memberlist's transport.
type port struct {
	network *Network
	process *Process
	addr    netip.AddrPort
	packets chan *memberlist.Packet
	streams chan net.Conn
	ctx     context.Context // ends with Shutdown
	cancel  context.CancelFunc
}

const (
	packetQueue = 4096 // what the kernel keeps for a process that does not read
	memberPort  = 7946
)

// Transport opens the process's port, for mesh.Config.Transport. A process has one at a time.
func (p *Process) Transport() memberlist.Transport {
	n := p.machine.network
	n.mu.Lock()
	defer n.mu.Unlock()
	t := &port{
		network: n, process: p, packets: make(chan *memberlist.Packet, packetQueue), streams: make(chan net.Conn),
		addr: netip.AddrPortFrom(p.machine.addr, uint16(memberPort+len(p.machine.processes))),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	for n.port[t.addr] != nil {
		t.addr = netip.AddrPortFrom(t.addr.Addr(), t.addr.Port()+1)
	}
	n.port[t.addr] = t
	return t
}

func (t *port) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.addr.Addr().AsSlice(), int(t.addr.Port()), nil
}

func (t *port) find(addr string) (*port, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	t.network.mu.Lock()
	defer t.network.mu.Unlock()
	return t.network.port[at], nil
}

func (t *port) WriteTo(b []byte, addr string) (time.Time, error) {
	t.process.Gate()
	to, err := t.find(addr)
	if err != nil || to == nil || t.process.Ended() {
		return time.Now(), err // UDP does not tell
	}
	delay, arrives := t.network.way(t.process, to.process, len(b), true)
	if !arrives {
		return time.Now(), nil
	}
	packet := &memberlist.Packet{Buf: append([]byte(nil), b...), From: net.UDPAddrFromAddrPort(t.addr)}
	time.AfterFunc(delay, func() {
		if to.process.Ended() {
			return
		}
		packet.Timestamp = time.Now()
		select {
		case to.packets <- packet:
		default:
		}
	})
	return time.Now(), nil
}

// DialTimeout connects. It is refused at once if nobody listens on a machine that can be reached, and times out if the
// machine is cut off. A stopped process's kernel accepts connections for it.
func (t *port) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	t.process.Gate()
	began := time.Now()
	fail := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	to, err := t.find(addr)
	if err != nil || t.process.Ended() || t.ctx.Err() != nil {
		return nil, fail(syscall.ENETUNREACH)
	}
	if to == nil {
		return nil, fail(syscall.ECONNREFUSED)
	}
	delay, arrives := t.network.way(t.process, to.process, 0, false)
	if !arrives || 2*delay > timeout {
		t.wait(t.late(began.Add(timeout)))
		return nil, fail(syscall.ETIMEDOUT)
	}
	n := t.network
	n.mu.Lock()
	there := n.arrivals.next(2 * delay)
	n.mu.Unlock()
	t.wait(there)
	if to.process.Ended() {
		return nil, fail(syscall.ECONNREFUSED)
	}
	here, remote := net.Pipe()
	go func() {
		to.process.Gate()
		s := to.stream(remote, t.process)
		select {
		case to.streams <- s:
		case <-to.ctx.Done():
			_ = s.Close()
		case <-time.After(timeout):
			_ = s.Close()
		}
	}()
	return t.stream(here, to.process), nil
}

// late is the duration until shortly after a time, as kernels' timers are late. It never ends at an instant at which
// something else is due.
func (t *port) late(at time.Time) time.Duration {
	const slack = 50 * time.Microsecond // as Linux has for the timers of most processes
	t.network.mu.Lock()
	defer t.network.mu.Unlock()
	late := 1 + time.Duration(t.network.chance(t.process, t.process).Int64N(int64(slack)))
	return t.network.arrivals.next(max(time.Until(at), 0) + late)
}

func (t *port) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
	}
}

func (t *port) PacketCh() <-chan *memberlist.Packet { return t.packets }

func (t *port) StreamCh() <-chan net.Conn { return t.streams }

func (t *port) Shutdown() error {
	t.cancel()
	t.network.mu.Lock()
	defer t.network.mu.Unlock()
	if t.network.port[t.addr] == t {
		delete(t.network.port, t.addr)
	}
	return nil
}
