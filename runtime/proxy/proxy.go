package proxy

import (
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Proxy sends data to other nodes, for the ranks of a process and for other ranks of its node.
type Proxy struct {
	log  *slog.Logger
	pid  int
	card Card

	pool    pool
	segment *segment                            // nil if there is no shared memory
	shared  []op                                // submitted slots, by slot of the segment
	pipes   [pipedSlots]atomic.Pointer[os.File] // open as long as a rail has data in them, as the memory is

	streams atomic.Uint32 // counts the streams that were opened
	steps   atomic.Uint64
	waits   atomic.Uint64
	refused atomic.Uint64
	logged  atomic.Bool // a refusal was logged

	taking  sync.Mutex // held while submitted operations are taken, to keep their order
	taken   []int
	touched []*rail

	mu         sync.Mutex
	endpoints  map[uint64]*Endpoint    // by generation, without shut ones
	neighbours map[[16]byte]*neighbour // by the segment's token
	waiting    []waiting               // streams that wait for an operation
	numWaiting atomic.Int32            // the length of waiting
	postponed  []postponedOp
	dead       []deadRank
	served     []*Endpoint // scratch of serve
	opened     int         // number of open endpoints
	running    bool
	changed    chan struct{} // closed when an endpoint is shut
	work       sync.WaitGroup
}

// waiting is a stream that waits for an operation of this process or of a neighbour.
type waiting struct {
	c         *Conn
	neighbour *neighbour // nil: an operation of this process
	seen      uint32
}

// postponedOp is an operation without data that could not be sent for lack of room.
type postponedOp struct {
	c    *Conn
	kind kind
	data []byte
}

type deadRank struct {
	e    *Endpoint
	rank int
}

// New makes the Proxy of a process. shares says whether other processes of this node may use it.
func New(log *slog.Logger, shares bool) *Proxy {
	p := &Proxy{
		log: log, pid: os.Getpid(), card: Card{FD: -1, UID: os.Geteuid()},
		endpoints: make(map[uint64]*Endpoint), neighbours: make(map[[16]byte]*neighbour), changed: make(chan struct{}),
	}
	if shares {
		if s, fd, token, err := createSegment(); err == nil {
			p.segment, p.card.FD, p.card.Token = s, fd, token
			p.shared = make([]op, sharedSlots)
		}
	}
	return p
}

// Stats counts a Proxy's operations.
type Stats struct {
	Own, Shared int    // operations in use: in the process's pool, and in the memory that the node's ranks share
	Waiting     int    // streams that wait for a free operation
	Steps       uint64 // steps that were sent
	Waits       uint64 // how often a rank found no free operation
	Refused     uint64 // operations whose token did not match
}

// Stats returns the current counts.
func (p *Proxy) Stats() Stats {
	s := Stats{
		Own: p.pool.inUse(), Waiting: int(p.numWaiting.Load()), Steps: p.steps.Load(), Waits: p.waits.Load(),
		Refused: p.refused.Load(),
	}
	if p.segment != nil {
		for i := range p.segment.claims {
			if p.segment.owner(i) != 0 {
				s.Shared++
			}
		}
	}
	return s
}

func (p *Proxy) endpoint(generation uint64) *Endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endpoints[generation]
}

// forget removes an endpoint. The endpoint's lock is held.
func (p *Proxy) forget(e *Endpoint, opened bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.endpoints, e.token.Generation)
	if opened {
		p.opened--
	}
	close(p.changed)
	p.changed = make(chan struct{})
	p.ring()
}

// start runs the loop as long as an endpoint is open.
func (p *Proxy) start(e *Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened++
	if p.segment != nil && !p.running && e.routes.PXN {
		p.running = true
		p.work.Go(p.run)
	}
}

// ring wakes the loop.
func (p *Proxy) ring() {
	if p.segment != nil {
		p.segment.bell.ring()
	}
}

// run sends the operations that other processes submit, until no endpoint is open.
func (p *Proxy) run() {
	for {
		moved := p.attend(nil)
		moved = p.serve() || moved
		p.mu.Lock()
		if p.opened == 0 && len(p.postponed) == 0 {
			p.running = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		if !moved {
			p.segment.bell.rest(lookEvery)
		}
	}
}

// attend sends the operations that other processes have submitted, and reports whether there were any. A waiting rank
// of this process calls it, too, as other ranks of its node wake it with their data anyway. by is that rank's Endpoint,
// or nil.
func (p *Proxy) attend(by *Endpoint) (moved bool) {
	if p.segment.submitted.Load() == 0 {
		return false
	}
	p.taking.Lock()
	defer p.taking.Unlock()
	return p.take(by)
}

// take is attend with taking held.
func (p *Proxy) take(by *Endpoint) (moved bool) {
	p.taken = p.segment.take(p.taken[:0])
	for _, i := range p.taken {
		if r := p.accept(i); r != nil && !slices.Contains(p.touched, r) {
			p.touched = append(p.touched, r)
		}
	}
	for _, r := range p.touched { // once for all operations
		if r.e == by {
			by.later(r)
		} else {
			r.kick()
		}
	}
	clear(p.touched)
	p.touched = p.touched[:0]
	return len(p.taken) > 0
}

// accept takes an operation from a slot of the segment.
func (p *Proxy) accept(i int) *rail {
	s, o := &p.segment.slots[i], &p.shared[i]
	if o.busy.Swap(true) { // it is being sent, and a process has submitted it again
		p.refused.Add(1)
		return nil
	}
	read := *s // another process may write to it
	o.slot, o.kind, o.to, o.credit, o.sent = i, kind(read.kind), int(read.dest), read.credit, 0
	o.back = read.back
	o.round = read.round
	o.done.Store(0)
	o.owner = p.segment.owner(i)
	o.token = Token{Comm: read.comm, Rank: int(read.from), PID: o.owner.pid(), Generation: read.generation}
	if o.piped = read.piped != 0; o.piped {
		o.data = inPipe[:min(read.size, stepBytes)]
	} else {
		o.data = p.segment.bytes(i)[:min(read.size, slotBytes)]
	}
	e := p.endpoint(read.to)
	if e == nil { // the endpoint was closed
		p.complete(o, len(o.data))
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.accept(o)
}

// serve does the rest of the loop's work: it wakes streams that wait for slots of other processes, sends postponed
// operations, and announces dead ranks.
func (p *Proxy) serve() (moved bool) {
	p.mu.Lock()
	moved = p.wakeWaiting(func(w waiting) bool {
		return w.neighbour != nil && w.neighbour.segment.freed.Load() != w.seen
	})
	postponed, dead := p.postponed, p.dead
	p.postponed, p.dead = nil, nil
	for _, e := range p.endpoints {
		p.served = append(p.served, e)
	}
	p.mu.Unlock()
	for _, e := range p.served {
		e.sendLate()
	}
	clear(p.served)
	p.served = p.served[:0]
	for _, d := range postponed {
		if d.c.state.Load()&gone == 0 || d.kind == kindLeave {
			d.c.control(d.kind, d.data) // or postpones it again
		}
	}
	for _, d := range dead {
		p.settleDead(d)
	}
	return moved || len(dead) > 0
}

// settleDead takes the last operations of a dead rank, announces its death after them, and frees the slots of its
// process.
func (p *Proxy) settleDead(d deadRank) {
	p.taking.Lock()
	defer p.taking.Unlock()
	p.take(nil)
	d.e.announceDeath(d.rank)
	p.reclaim(d.e.members[d.rank].PID)
}

// reclaim frees the slots of a dead process, except those being sent. None of its operations is still submitted.
func (p *Proxy) reclaim(pid int) {
	for i := range p.segment.claims {
		o, own := p.segment.owner(i), ownerOf(p.pid, 0)
		if o.pid() == pid && !p.shared[i].busy.Load() && p.segment.claims[i].CompareAndSwap(uint64(o), uint64(own)) {
			p.drain(i)
			p.free(i, own)
		}
	}
}

// noteDead makes the loop announce a dead rank, after all its operations.
func (p *Proxy) noteDead(e *Endpoint, rank int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = append(p.dead, deadRank{e, rank})
	p.ring()
}

// postpone queues an operation without data, to be sent when there is room.
func (p *Proxy) postpone(c *Conn, k kind, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.postponed = append(p.postponed, postponedOp{c, k, data})
	p.ring()
}

// hasPostponed reports whether an operation of c is postponed.
func (p *Proxy) hasPostponed(c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.postponed, func(d postponedOp) bool { return d.c == c })
}

// get returns an operation of the process's own pool or, if that is exhausted, in a slot of its segment. If none is
// free, it returns nil, and c waits for one.
func (p *Proxy) get(c *Conn) *op {
	o := p.tryGet()
	if o == nil {
		p.addWaiting(c, nil, 0)
		o = p.tryGet() // one may have been freed before c was waiting
	}
	return o
}

func (p *Proxy) tryGet() *op {
	if o := p.pool.get(); o != nil {
		o.slot = -1
		return o
	}
	if p.segment == nil {
		return nil
	}
	own := ownerOf(p.pid, 0)
	i := p.segment.claim(own, 0)
	if i < 0 {
		return nil
	}
	p.shared[i].busy.Swap(true)
	p.shared[i].slot, p.shared[i].owner = i, own
	return &p.shared[i]
}

// complete ends an operation whose last n bytes were sent.
func (p *Proxy) complete(o *op, n int) {
	if c := o.stream; c != nil {
		o.done.Add(int64(n)) // from here on it belongs to the stream
		c.e.waiter.Ring()
		return
	}
	if slot, owner := o.slot, o.owner; slot >= 0 {
		o.data = nil
		p.drain(slot)
		o.busy.Store(false)
		p.free(slot, owner)
	} else {
		p.pool.put(o)
	}
	p.released()
}

// drain empties the pipe of a slot, if it has one: its contents were not sent.
func (p *Proxy) drain(slot int) {
	if pipe := p.pipe(slot); pipe != nil && buffered(pipe) > 0 {
		readPipe(pipe, make([]byte, 2*stepBytes)) // more than it has room for
	}
}

func (p *Proxy) free(slot int, o owner) {
	if p.segment.free(slot, o) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, m := range p.neighbours {
			m.segment.bell.ring()
		}
	}
}

// addWaiting adds a stream that waits for an operation.
func (p *Proxy) addWaiting(c *Conn, m *neighbour, seen uint32) {
	p.waits.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.waiting {
		if p.waiting[i].c == c {
			p.waiting[i].seen = seen
			return
		}
	}
	p.waiting = append(p.waiting, waiting{c, m, seen})
	p.numWaiting.Add(1)
}

// released wakes the streams that wait for an operation of this process.
func (p *Proxy) released() {
	if p.numWaiting.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeWaiting(func(w waiting) bool { return w.neighbour == nil })
}

// wakeWaiting wakes the waiting streams for which an operation may be free, and reports whether there were any. p.mu is
// held.
func (p *Proxy) wakeWaiting(free func(waiting) bool) (woken bool) {
	before := len(p.waiting)
	p.waiting = slices.DeleteFunc(p.waiting, func(w waiting) bool {
		if !free(w) {
			return false
		}
		w.c.e.waiter.Ring()
		return true
	})
	p.numWaiting.Store(int32(len(p.waiting)))
	return len(p.waiting) < before
}

// refuse counts an operation whose token does not match, tells the endpoint's rank, and logs the first one.
func (p *Proxy) refuse(e *Endpoint, err error) {
	p.refused.Add(1)
	if f := e.refused.Load(); f != nil {
		(*f)(err)
	}
	if p.logged.CompareAndSwap(false, true) {
		p.log.Error("refused an operation for another rank", "comm", e.token.Comm.Short(), "error", err)
	}
}

// Close ends the proxy. Its endpoints must be closed. It waits up to patience for other ranks of the node that still
// need their rails.
func (p *Proxy) Close(patience time.Duration) {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		p.mu.Lock()
		left, changed := len(p.endpoints), p.changed
		p.mu.Unlock()
		if left == 0 {
			break
		}
		select {
		case <-changed:
			continue
		case <-timeout.C:
		}
		p.mu.Lock()
		all := slices.Collect(maps.Values(p.endpoints))
		p.mu.Unlock()
		for _, e := range all {
			e.abandon()
		}
		break
	}
	p.work.Wait()
	if p.segment != nil {
		_ = unix.Close(p.card.FD)
		p.segment.bell.close()
		for _, m := range p.neighbours {
			m.segment.bell.close()
			m.closePipes()
		}
	}
}

// neighbour is another process of this node, in whose segment ranks of this process submit operations.
type neighbour struct {
	p       *Proxy
	pid     int
	segment *segment

	mu        sync.Mutex
	writeEnds [pipedSlots]int // descriptors of the pipes used so far, -1 for one that can't be opened
}

// neighbour returns the process of a rank.
func (p *Proxy) neighbour(m *Member) (*neighbour, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.neighbours[m.Token]; known != nil {
		return known, nil
	}
	s, err := openSegment(m.PID, m.FD, m.Token)
	if err != nil {
		return nil, err
	}
	made := &neighbour{p: p, pid: m.PID, segment: s}
	p.neighbours[m.Token] = made
	return made, nil
}

// claim takes a slot for c. If none is free and waits is set, c waits for one.
func (m *neighbour) claim(c *Conn, waits bool) int {
	own := ownerOf(m.p.pid, c.number)
	if i := m.segment.claim(own, 0); i >= 0 || !waits {
		return i
	}
	seen := m.segment.freed.Load()
	m.segment.wanted.Store(1)
	if i := m.segment.claim(own, 0); i >= 0 { // one may have been freed before wanted was set
		return i
	}
	m.p.addWaiting(c, m, seen)
	return -1
}

// holds reports whether a submitted operation of c was not sent yet.
func (m *neighbour) holds(c *Conn) bool {
	own := ownerOf(m.p.pid, c.number)
	for i := range m.segment.claims {
		if m.segment.owner(i) == own {
			return true
		}
	}
	return false
}

// submit submits the operation in a slot. The slot's process must be rung to send it.
func (m *neighbour) submit(i int, c *Conn, k kind, round uint64, n int, piped bool) {
	s := &m.segment.slots[i]
	*s = slot{
		to: c.e.members[c.carrier].Generation, generation: c.e.token.Generation, comm: c.e.token.Comm,
		credit: c.credit(), back: c.lentArrived.Swap(0), from: int32(c.e.self), dest: int32(c.peer), size: uint32(n),
		kind: uint32(k), round: round,
	}
	if piped {
		s.piped = 1
	}
	m.segment.submit(i)
}
