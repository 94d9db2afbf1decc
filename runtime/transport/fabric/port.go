package fabric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/runtime/proxy"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/shm"
	"github.com/carillon-rt/carillon/runtime/transport/tcp"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Port is one rank of a communicator before it is connected.
type Port struct {
	f     *Fabric
	id    lifecycle.CommID
	card  card
	inbox *shm.Inbox // nil without shared memory
	gate  *tcp.Gate  // nil if all ranks are of this Fabric

	endpoint *proxy.Endpoint // nil if all ranks are of this Fabric
}

// Card returns what the other ranks must know to connect to this one. It must only be given to them.
func (p *Port) Card() []byte { return p.card.encode() }

// Profile reports network traffic to the plug-ins of the profiler, from the first byte on.
func (p *Port) Profile(c *profiler.Comm) {
	if p.endpoint != nil {
		p.endpoint.Profile(c)
	}
}

// GiveUp gives up the Port, instead of Connect. The other ranks, which may have the card, are told why.
func (p *Port) GiveUp(why transport.Notice) {
	p.f.hub.settle(p.id, p.card.gate, &why)
	if p.inbox != nil {
		p.inbox.GiveUp(why)
	}
	if p.gate != nil {
		p.gate.GiveUp(why)
		p.endpoint.Close()
	}
	p.closeInbox()
}

// settle records that the rank is connected.
func (p *Port) settle() {
	p.f.hub.settle(p.id, p.card.gate, nil)
	if p.gate != nil {
		p.gate.Close()
	}
}

func (p *Port) closeInbox() {
	if p.inbox != nil {
		p.inbox.Close()
	}
}

// way is how a peer is reached.
type way uint8

const (
	self way = iota
	viaInproc
	viaSHM
	viaTCP
)

// Connect connects the rank to all others, whose cards are given by rank, including its own. It blocks until every rank
// has every connection, a rank gives up or ends, or ctx ends. If it fails here, all others are told. It consumes the
// Port. The errors are *transport.NoticeError, from a rank that gave up, *lifecycle.PeerError, which names the rank
// that could not be reached, and *lifecycle.SystemError. If the loss of a rank ended ctx, the error is that loss.
//
// A card is a promise: until its rank is connected, the rank's gate is open, its inbox exists and its process lives, or
// the rank is gone. So a rank that dials gets an answer at once, and one that waits holds something that ends together
// with the peer.
func (p *Port) Connect(ctx context.Context, comm lifecycle.CommID, rank int, encoded [][]byte) (*Links, error) {
	l := &Links{f: p.f, comm: comm, rank: rank, conns: make([]transport.Conn, len(encoded))}
	if err := p.connect(ctx, l, encoded); err != nil {
		err = cmp.Or(transport.LossOf(ctx), err)
		why := transport.NoticeOf(err, rank)
		l.Notify(why)
		l.Close()
		p.GiveUp(why)
		return nil, err
	}
	p.settle()
	return l, nil
}

func (p *Port) connect(ctx context.Context, l *Links, encoded [][]byte) error {
	rank := l.rank
	cards, err := p.read(rank, encoded)
	if err != nil {
		return err
	}
	l.topology = topology(cards)
	ways, local, inProcess := p.choose(rank, cards)
	patience := transport.PatienceFor(local, inProcess, slices.Contains(ways, viaTCP))
	if err := p.open(l, ways, patience); err != nil {
		return err
	}
	l.endpoint = p.endpoint
	if err := l.connect(ctx, p, ways, cards); err != nil {
		return err
	}
	for i, c := range l.conns {
		if c != nil {
			l.topology.Transport[i] = c.Name()
		}
	}
	if l.endpoint != nil {
		l.topology.Connections = len(l.endpoint.Rails())
	}
	return nil
}

func (p *Port) read(rank int, encoded [][]byte) ([]*card, error) {
	cards := make([]*card, len(encoded))
	for i, b := range encoded {
		c, err := decodeCard(b)
		if err == nil && c.comm != p.id {
			err = fmt.Errorf("it makes communicator %v: it passed something else, such as another list of ranks or ids",
				c.comm.Short())
		}
		if err == nil && p.gate == nil && c.fabric != p.card.fabric {
			err = errors.New("it comes from another process, and all ranks were to be in this one")
		}
		if err == nil && c.wire != p.card.wire {
			err = fmt.Errorf("its wire is to be %q, and this rank's %q: set CARILLON_WIRE alike on all ranks",
				c.wire.String(), p.card.wire.String())
		}
		if err != nil {
			return nil, &lifecycle.PeerError{
				Code: lifecycle.CodeMismatch, Rank: i, Self: rank, Comm: p.id,
				Detail: "its card makes no sense here", Err: err,
			}
		}
		cards[i] = c
	}
	if *cards[rank] != p.card {
		return nil, fmt.Errorf("card %d is not this rank's", rank)
	}
	return cards, nil
}

// choose returns how each peer is reached, how many ranks are on this host, and how many of these are in this process.
func (p *Port) choose(rank int, cards []*card) (ways []way, local, inProcess int) {
	ways = make([]way, len(cards))
	me := &p.card
	for i, c := range cards {
		if c.hostID == me.hostID {
			local++
			if c.process == me.process {
				inProcess++
			}
		}
		switch {
		case i == rank:
			ways[i] = self
		case c.fabric == me.fabric && !p.f.config.DisableP2P:
			ways[i] = viaInproc
		case c.hostID == me.hostID && c.inbox.Slots != 0 && me.inbox.Slots != 0:
			ways[i] = viaSHM
		default:
			ways[i] = viaTCP
		}
	}
	return ways, local, inProcess
}

// open makes the Waiter of l, and hands the inbox over to l if it is needed.
func (p *Port) open(l *Links, ways []way, patience transport.Patience) error {
	if !slices.Contains(ways, viaSHM) {
		p.closeInbox()
		l.waiter = transport.NewWaiter(len(ways), patience)
		return nil
	}
	if err := p.inbox.Map(); err != nil {
		return &lifecycle.SystemError{Code: lifecycle.CodeSystem, Op: "connect with ranks of this host", Err: err}
	}
	l.inbox = p.inbox
	l.waiter = transport.NewSharedWaiter(len(ways), p.inbox.Bell(), patience)
	return nil
}

// Topology returns where the ranks are, from their cards, before they are connected: all of it except Transport and
// Connections.
func (p *Port) Topology(rank int, cards [][]byte) (transport.Topology, error) {
	decoded, err := p.read(rank, cards)
	if err != nil {
		return transport.Topology{}, err
	}
	return topology(decoded), nil
}

// pxn reports whether ranks send to other nodes through other ranks of their node: if there are several nodes and fewer
// nodes than ranks, no rank has switched it off, and the ranks of each node can share memory.
func pxn(t *transport.Topology, cards []*card) tape.PXN {
	switch {
	case len(t.Ranks) < 2:
		return tape.PXNOneNode
	case len(t.Ranks) == len(cards):
		return tape.PXNAlone
	case slices.ContainsFunc(cards, func(c *card) bool { return !c.pxn }):
		return tape.PXNDisabled
	case slices.ContainsFunc(cards, func(c *card) bool { return c.proxy.FD < 0 }):
		return tape.PXNNoMemory
	}
	for i, c := range cards {
		first := cards[t.Ranks[t.Node[i]][0]]
		if c.proxy.UID != first.proxy.UID || c.process.PIDSpace != first.process.PIDSpace {
			return tape.PXNStrangers
		}
	}
	return tape.PXNOn
}

// topology returns where the ranks are, but not how this rank reaches them.
func topology(cards []*card) transport.Topology {
	n := len(cards)
	t := transport.Topology{
		Node: make([]int, n), Transport: make([]string, n), Host: make([]string, n), PID: make([]int, n),
	}
	nodes := make(map[string]int)
	for i, c := range cards {
		node, ok := nodes[c.hostID]
		if !ok {
			node = len(nodes)
			nodes[c.hostID] = node
			t.Ranks = append(t.Ranks, nil)
		}
		t.Node[i], t.Host[i], t.PID[i] = node, c.host, c.process.PID
		t.Ranks[node] = append(t.Ranks[node], i)
	}
	t.PXN = pxn(&t, cards)
	return t
}
