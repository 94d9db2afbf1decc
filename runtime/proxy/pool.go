package proxy

import (
	"sync"
	"sync/atomic"
)

// ownOps is the number of operations in a process's own pool; further ones for its own ranks use its segment.
const ownOps = 1024

// inlineBytes is the most data that is copied into an operation of the process's own pool. Larger data is sent from the
// owner's memory.
const inlineBytes = 1024

// op is an operation in progress: data from one rank to another, in steps of at most stepBytes.
type op struct {
	kind   kind
	token  Token
	to     int
	credit uint64 // see header.credit
	back   uint32 // see header.arrived
	round  uint64 // number of the round, see Waiter.Together; 0 for none
	data   []byte
	sent   int // bytes whose step has begun; used by the rail

	// stream is the sender's stream if data is the memory of a rank of this process. The stream returns the operation
	// to the pool when done shows that all data was sent.
	stream *Conn
	done   atomic.Int64

	slot  int         // slot of the segment, -1 for none
	piped bool        // the data is in the slot's pipe
	owner owner       // owner of the slot
	busy  atomic.Bool // the slot was submitted

	events events // event ids, from the profiler of the rail's rank
	pooled bool
	next   *op
	inline [inlineBytes]byte
}

// pool holds the operations of a process.
type pool struct {
	mu   sync.Mutex
	ops  []op // made by the first get
	free *op
	used int
}

// get returns an operation, nil if all are in use.
func (p *pool) get() *op {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ops == nil {
		p.ops = make([]op, ownOps)
		for i := range p.ops {
			p.ops[i].pooled, p.ops[i].next = true, p.free
			p.free = &p.ops[i]
		}
	}
	o := p.free
	if o == nil {
		return nil
	}
	p.free = o.next
	p.used++
	return o
}

func (p *pool) put(o *op) {
	o.data, o.stream, o.next = nil, nil, nil
	if !o.pooled {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	o.next, p.free = p.free, o
	p.used--
}

func (p *pool) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// queue is a list of operations, the oldest first.
type queue struct{ head, tail *op }

func (q *queue) push(o *op) {
	o.next = nil
	if q.tail == nil {
		q.head = o
	} else {
		q.tail.next = o
	}
	q.tail = o
}

func (q *queue) pop() *op {
	o := q.head
	if o != nil {
		if q.head = o.next; q.head == nil {
			q.tail = nil
		}
		o.next = nil
	}
	return o
}

// remove removes an operation.
func (q *queue) remove(o *op) (found bool) {
	var kept queue
	for x := q.pop(); x != nil; x = q.pop() {
		if x == o {
			found = true
		} else {
			kept.push(x)
		}
	}
	*q = kept
	return found
}
