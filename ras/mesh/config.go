package mesh

import (
	"context"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"
)

// Config describes a member, and how it communicates with the others.
type Config struct {
	// Self is this process, as the function Self returns it.
	Self Member
	// Secret is the job's secret, SecretSize bytes that only its members know.
	Secret []byte
	// Job names the job. Members of different jobs do not talk to each other, even with one secret.
	Job string

	// Bind is the address to listen at, UDP and TCP. The default is loopback and a free port, for a job on one machine.
	Bind netip.AddrPort
	// Advertise is the IP address by which others reach this member, if it isn't Bind's. It must be set if Bind is
	// unspecified (0.0.0.0).
	Advertise netip.Addr

	// Tuning has the intervals and timeouts: OneMachine (the default), LAN or WAN.
	Tuning Tuning

	// OnEvent is called with the events, in order, on one goroutine. It may block for a while: up to eventQueue events
	// are queued, then the oldest are dropped. nil ignores all.
	OnEvent func(Event)
	// Handler answers questions. from is the name of the asking member. It must return before the context ends, and is
	// called for at most handlers questions at a time. nil answers nothing.
	Handler func(ctx context.Context, from string, question []byte) []byte
	// LocalNote answers, from its tape, for a process of this host that can't answer itself. It may be nil or return
	// nil.
	LocalNote func(Member) []byte

	// Logger gets memberlist's log, at debug. nil discards it.
	Logger *slog.Logger
	// Host is the machine. nil is this process's machine; simulations have their own.
	Host Host
	// Transport moves bytes. nil is UDP and TCP at Bind, sealed with Secret; simulations have their own. The mesh owns
	// it and shuts it down. From then on, connecting, sending and receiving must fail at once, as Close waits for them.
	Transport memberlist.Transport
	// Rand is the source of random choices: which members to inform or ask first, and how long to wait before joining
	// again. No secret depends on it. nil is the runtime's; a simulation's own must be safe for concurrent use.
	// memberlist always uses math/rand's global source.
	Rand mathrand.Source
}

// Tuning has the intervals and timeouts of a mesh. Its zero value is OneMachine.
type Tuning struct {
	// ProbeInterval is how often a member probes another one, with four packets. Silence is noticed after one or two
	// intervals, as other members probe too.
	ProbeInterval time.Duration
	// ProbeTimeout is how long the answer to a probe may take before others are asked to probe too: the 99th percentile
	// of the round trip, with the scheduler's delays on a busy machine.
	ProbeTimeout time.Duration
	// IndirectChecks is how many others are asked to probe a member that did not answer.
	IndirectChecks int
	// SuspicionMult sets how long a silent member has to answer before it counts as unreachable: SuspicionMult · max(1,
	// log10(members)) · ProbeInterval, and up to six times that until others confirm its silence.
	SuspicionMult int
	// GossipInterval is how often messages, if any, are passed on to GossipNodes others. They reach all in about
	// log(members)/log(1+GossipNodes) intervals.
	GossipInterval time.Duration
	GossipNodes    int
	// RetransmitMult sets how often each member passes each message on: k = RetransmitMult · ⌈log10(members+1)⌉ times.
	// A member misses it with a probability of about e^-k, and then gets it at a later PushPullInterval.
	RetransmitMult int
	// PushPullInterval is how often two members exchange their full state, which repairs what gossip missed. It costs
	// about 200 bytes a member, and grows with the logarithm of the members beyond 32.
	PushPullInterval time.Duration
	// StreamTimeout bounds one exchange on a stream: connect, send, receive.
	StreamTimeout time.Duration
	// CheckInterval is how often each member checks whether its two neighbours on its host are stopped. A stop is
	// reported after at most CheckInterval and a quarter of a second.
	CheckInterval time.Duration
	// WitnessTime is how long the members of a silent member's host have to report its state, before it counts as
	// unreachable.
	WitnessTime time.Duration
	// GossipToTheDead is how long a silent member still gets gossip, so that it can answer a suspicion.
	GossipToTheDead time.Duration
}

// OneMachine is for a job on one machine: a pidfd tells deaths, so probes are few.
func OneMachine() Tuning {
	return Tuning{
		ProbeInterval: time.Second, ProbeTimeout: 500 * time.Millisecond, IndirectChecks: 2, SuspicionMult: 6,
		GossipInterval: 100 * time.Millisecond, GossipNodes: 3, RetransmitMult: 10, PushPullInterval: 30 * time.Second,
		StreamTimeout: 3 * time.Second, CheckInterval: time.Second, WitnessTime: 500 * time.Millisecond,
		GossipToTheDead: 30 * time.Second,
	}
}

// LAN is for machines with a network between them whose round trips take less than some ten milliseconds.
func LAN() Tuning {
	t := OneMachine()
	t.ProbeInterval, t.ProbeTimeout = 250*time.Millisecond, 200*time.Millisecond
	t.IndirectChecks, t.SuspicionMult, t.RetransmitMult = 3, 10, 6
	t.StreamTimeout = 5 * time.Second
	return t
}

// WAN is for machines whose round trips take up to half a second.
func WAN() Tuning {
	t := LAN()
	t.ProbeInterval, t.ProbeTimeout = 1500*time.Millisecond, time.Second
	t.SuspicionMult = 6
	t.GossipInterval, t.GossipNodes = 300*time.Millisecond, 4
	t.PushPullInterval, t.StreamTimeout, t.GossipToTheDead = time.Minute, 15*time.Second, time.Minute
	t.WitnessTime = 2 * time.Second
	return t
}

// Validate says which field is wrong, what it is and what is allowed.
func (c *Config) Validate() error {
	m := c.Self
	switch {
	case m.Host == "" || len(m.Host) > MaxHost:
		return fmt.Errorf("mesh: Self.Host is %q, want 1 to %d bytes", m.Host, MaxHost)
	case m.PID <= 0:
		return fmt.Errorf("mesh: Self.PID is %d, want a process's number", m.PID)
	case m.Name != nameOf(m.Host, m.PID):
		return fmt.Errorf("mesh: Self.Name is %q, want %q", m.Name, nameOf(m.Host, m.PID))
	case m.Rank < -1 || m.JobSize < 0:
		return fmt.Errorf("mesh: Self is rank %d of %d; want -1 for none, and a size of at least 0", m.Rank, m.JobSize)
	case len(m.Health) > MaxHealth:
		return fmt.Errorf("mesh: Self.Health has %d bytes, want at most %d", len(m.Health), MaxHealth)
	case len(c.Secret) != SecretSize:
		return fmt.Errorf("mesh: Secret has %d bytes, want %d", len(c.Secret), SecretSize)
	case c.Transport == nil && c.Bind.Addr().IsUnspecified() && !c.Advertise.IsValid():
		return fmt.Errorf("mesh: Bind is %v, so Advertise must be set to an address that others reach", c.Bind)
	}
	return nil
}

func (c *Config) memberlistConfig(d *delegate) *memberlist.Config {
	t := c.Tuning
	m := memberlist.DefaultLANConfig()
	m.Name = c.Self.Name
	m.UDPBufferSize -= tagSize + sealOverhead
	m.BindAddr, m.BindPort, m.AdvertisePort = "127.0.0.1", 0, 0
	m.TCPTimeout = t.StreamTimeout
	m.IndirectChecks, m.RetransmitMult, m.SuspicionMult = t.IndirectChecks, t.RetransmitMult, t.SuspicionMult
	m.PushPullInterval, m.ProbeInterval, m.ProbeTimeout = t.PushPullInterval, t.ProbeInterval, t.ProbeTimeout
	m.GossipInterval, m.GossipNodes, m.GossipToTheDeadTime = t.GossipInterval, t.GossipNodes, t.GossipToTheDead
	// A process whose own probes fail waits up to four times longer, as it is likely slow itself.
	m.AwarenessMaxMultiplier = 4
	// Packets are small, and unpacking could need any amount of memory.
	m.EnableCompression = false
	// A process of the same name at another address is another one: see Member.Instance.
	m.DeadNodeReclaimTime = time.Millisecond
	m.RequireNodeNames = false
	m.Delegate, m.Events, m.Alive, m.Ping = d, d, d, nil
	m.DisableTcpPingsForNode = d.missed
	m.Logger = slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug) // it logs ordinary things as errors
	return m
}
