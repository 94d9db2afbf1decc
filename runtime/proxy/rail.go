package proxy

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/tcp"
)

const (
	// stepBytes is the most that is sent to one rank before the next rank's turn.
	stepBytes = 512 << 10

	// packBytes is the largest step that is copied, so that it can be sent together with others.
	packBytes = 4 << 10

	// stageBytes is the size of the buffer for steps that are sent together.
	stageBytes = 64 << 10
)

// rail is the connection of a rank to one rank of another node. The rank uses it to send its own operations and those
// of other ranks of its node, and to receive data from the peer's node.
//
// One goroutine at a time sends, for all others: one that has something to send, or that learns that there is room.
type rail struct {
	e    *Endpoint
	peer int
	conn atomic.Pointer[tcp.Conn] // nil until connected

	mu        sync.Mutex
	queue     queue
	coalescer coalescer
	closed    bool // to be closed when the queue is empty

	full    atomic.Bool // the network accepts no more data
	more    atomic.Bool // something was queued while a goroutine was sending
	sending sync.Mutex

	// For the sending goroutine: the parts to send, and their operations; nil for parts of the stage.
	stage []byte
	parts [][]byte
	ops   []*op

	// For the receiving goroutine: an incomplete header, and the destination of the data behind it.
	partial [headerSize]byte
	got     int
	left    int
	head    header
	to      *Conn  // nil: the data is dropped
	notice  []byte // the data if it is not for to
	step    profiler.ID
}

// push queues an operation, without sending it.
func (r *rail) push(o *op) {
	r.mu.Lock()
	r.coalescer.add(o, r.e.routes.index[o.token.Rank], r.queue.head == nil)
	r.queue.push(o)
	r.mu.Unlock()
}

// kick sends as much as possible, unless another goroutine is sending.
func (r *rail) kick() {
	for r.more.Store(true); r.more.Load() && r.sending.TryLock(); {
		r.more.Store(false)
		r.drain()
		r.sending.Unlock()
	}
}

func (r *rail) drain() {
	conn := r.conn.Load()
	if conn == nil {
		r.mu.Lock()
		closed := r.closed
		r.mu.Unlock()
		if r.full.Store(true); closed { // it will never be connected
			r.drop()
		}
		return
	}
	for len(r.parts) > 0 || r.build() {
		n, err := r.send(conn)
		if err != nil {
			r.drop()
			return
		}
		if n == 0 {
			r.full.Store(true)
			return
		}
		r.advance(n)
	}
	r.full.Store(false)
}

// send sends some of the parts: those in front of data in a pipe, or that data.
func (r *rail) send(conn *tcp.Conn) (int, error) {
	switch i := slices.IndexFunc(r.ops, func(o *op) bool { return o != nil && o.piped }); i {
	case -1:
		return conn.TrySend(r.parts, false)
	case 0:
		pipe := r.e.p.pipe(r.ops[0].slot)
		if buffered(pipe) == 0 { // a process has read from it: send zeros, to keep the frame, and the other streams
			return conn.TrySend(r.parts[:1], false)
		}
		return conn.TrySplice(pipe, len(r.parts[0]))
	default:
		return conn.TrySend(r.parts[:i], true)
	}
}

// advance removes the first n bytes from the parts: they were sent.
func (r *rail) advance(n int) {
	parts := 0
	for ; parts < len(r.parts) && n >= len(r.parts[parts]); parts++ {
		took := len(r.parts[parts])
		n -= took
		o := r.ops[parts]
		switch {
		case o == nil:
		case o.sent == len(o.data):
			r.e.profileEnd(&o.events, lifecycle.CodeOK)
			r.e.p.complete(o, took)
		default:
			r.e.profileStepEnd(&o.events, lifecycle.CodeOK)
			o.done.Add(int64(took))
			r.push(o) // behind the other operations
		}
	}
	r.parts = r.parts[:copy(r.parts, r.parts[parts:])]
	r.ops = r.ops[:copy(r.ops, r.ops[parts:])]
	if n > 0 {
		r.parts[0] = r.parts[0][n:]
		if o := r.ops[0]; o != nil {
			o.done.Add(int64(n))
		}
	}
}

// build makes the next parts from the queue.
func (r *rail) build() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	stage := r.stage[:0]
	from := 0 // stage[from:] is not in parts yet
	for len(r.parts)+3 <= tcp.MaxParts && len(stage) <= stageBytes-headerSize-packBytes {
		o := r.queue.pop()
		if o == nil {
			break
		}
		if o.piped && !r.conn.Load().Splices() {
			o.data, o.piped = make([]byte, len(o.data)), false
			readPipe(r.e.p.pipe(o.slot), o.data)
		}
		n := min(len(o.data)-o.sent, stepBytes)
		h := header{
			kind: o.kind, size: n, from: o.token.Rank, to: o.to, generation: o.token.Generation, pid: o.token.PID,
			credit: o.credit, arrived: o.back,
		}
		o.credit, o.back = 0, 0
		stage = h.append(stage)
		data := o.data[o.sent : o.sent+n]
		o.sent += n
		r.e.profileStep(o, n)
		r.e.p.steps.Add(1)
		if n <= packBytes && !o.piped {
			stage = append(stage, data...)
			r.e.profileEnd(&o.events, lifecycle.CodeOK)
			r.e.p.complete(o, n) // its last step, as all others have stepBytes
			continue
		}
		r.parts = append(r.parts, stage[from:], data)
		r.ops = append(r.ops, nil, o)
		from = len(stage)
	}
	if from < len(stage) {
		r.parts, r.ops = append(r.parts, stage[from:]), append(r.ops, nil)
	}
	if len(r.parts) == 0 && r.closed {
		_ = r.conn.Load().Close() // can't fail
	}
	return len(r.parts) > 0
}

// drop ends all operations after the connection was lost.
func (r *rail) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.ops {
		if o != nil {
			r.queue.push(o)
		}
	}
	r.parts, r.ops = nil, nil
	for o := r.queue.pop(); o != nil; o = r.queue.pop() {
		r.e.profileEnd(&o.events, lifecycle.CodeUnreachable)
		r.e.p.complete(o, len(o.data)-int(o.done.Load()))
	}
	if c := r.conn.Load(); r.closed && c != nil {
		_ = c.Close()
	}
}

// detach takes an operation and its memory back: the rest of a step that has begun is copied, further steps are
// dropped.
func (r *rail) detach(o *op) {
	r.sending.Lock()
	r.mu.Lock()
	if i := slices.Index(r.ops, o); i >= 0 {
		r.parts[i], r.ops[i] = bytes.Clone(r.parts[i]), nil
	}
	r.queue.remove(o)
	r.e.profileEnd(&o.events, lifecycle.CodeAbandoned)
	r.mu.Unlock()
	r.sending.Unlock()
	r.kick()
}

// close closes the connection once all data is sent.
func (r *rail) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.kick()
}

// Ring implements tcp.User.
func (r *rail) Ring() { r.kick() }

// Lost implements tcp.User.
func (r *rail) Lost(err error) {
	r.e.railLost(r, err)
	r.kick()
}

// Receive implements tcp.User: it passes data to its streams.
func (r *rail) Receive(p []byte) error {
	defer r.e.waiter.Ring()
	for len(p) > 0 {
		if r.left > 0 {
			n := min(r.left, len(p))
			r.profileTaking(n)
			r.put(p[:n])
			p = p[n:]
			if err := r.took(n); err != nil {
				return err
			}
			continue
		}
		if r.got == 0 && len(p) >= headerSize {
			r.head = readHeader(p)
			p = p[headerSize:]
		} else {
			n := copy(r.partial[r.got:], p)
			p = p[n:]
			if r.got += n; r.got < headerSize {
				return nil
			}
			r.head, r.got = readHeader(r.partial[:]), 0
		}
		if err := r.begin(); err != nil {
			return err
		}
	}
	return nil
}

// Room implements tcp.User: large data goes directly to the destination that its rank has supplied, or into its
// stream's ring.
func (r *rail) Room() []byte {
	if r.to == nil || !r.head.kind.isData() || r.left < packBytes {
		return nil
	}
	return r.to.room(r.left)
}

// Filled implements tcp.User.
func (r *rail) Filled(n int) error {
	r.profileTaking(n)
	r.to.filled(n)
	if n == 0 {
		return nil
	}
	defer r.e.waiter.Ring()
	return r.took(n)
}

// profileTaking is called before the rank can take n more bytes of a step.
func (r *rail) profileTaking(n int) {
	if n == r.left && r.step != 0 {
		r.e.profile.Load().State(r.step, profiler.RecvGPUWait, uint64(r.head.size))
	}
}

// took counts n received bytes of a step.
func (r *rail) took(n int) error {
	if r.left -= n; r.left > 0 {
		return nil
	}
	return r.arrived()
}

// begin handles the header of an arriving step.
func (r *rail) begin() error {
	h := &r.head
	c, err := r.e.admit(r.peer, h)
	r.to, r.left, r.notice, r.step = c, h.size, r.notice[:0], 0
	switch {
	case err != nil:
		r.e.p.refuse(r.e, err)
		return nil // its data is dropped
	case h.size > h.kind.maxBytes():
		return fmt.Errorf("an operation of kind %d with %d bytes", h.kind, h.size)
	}
	if h.credit > 0 {
		c.granted.Add(h.credit)
	}
	if h.arrived > 0 {
		c.returned.Add(uint64(h.arrived))
		c.signal()
	}
	if h.size == 0 {
		return r.arrived()
	}
	if h.kind.isData() {
		r.step = c.profileArrival(h.size)
	}
	return nil
}

func (r *rail) put(b []byte) {
	switch {
	case r.to == nil:
	case !r.head.kind.isData():
		r.notice = append(r.notice, b...)
	case !r.to.put(b):
		r.to.lost(&lifecycle.PeerError{
			Code: lifecycle.CodeInternal, Rank: r.to.peer, Self: r.e.self, Comm: r.e.token.Comm,
			Detail: "it sent more than it was allowed",
		})
		r.to = nil // the rail's other streams continue
	}
}

// arrived handles a step that has arrived completely.
func (r *rail) arrived() error {
	c := r.to
	if c == nil {
		return nil
	}
	switch r.head.kind {
	case kindLent:
		c.lentArrived.Add(uint32(r.head.size))
		if c.state.Load()&(closed|gaveUp|gone) == 0 {
			c.control(kindCredit, nil)
		}
	case kindConfirm:
		c.state.Or(confirmed)
	case kindBye:
		c.end(transport.PeerClosed(c.peer))
	case kindNotice, kindLost:
		n, err := transport.DecodeNotice(r.notice)
		if err != nil {
			return err
		}
		if r.head.kind == kindNotice {
			c.lost(&transport.NoticeError{Peer: c.peer, Notice: n})
			return nil
		}
		c.lost(&lifecycle.PeerError{
			Code: n.Code, Rank: c.peer, Self: r.e.self, Detail: fmt.Sprintf("%s; rank %d tells", n.Detail, r.peer),
		})
	default:
	}
	return nil
}
