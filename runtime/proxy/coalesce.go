package proxy

import (
	"time"

	"github.com/carillon-rt/carillon/runtime/transport"
)

// coalescer collects the small data of a round: an operation in which each of the ranks that a rail sends for sends
// something to the peer, which needs all of it (see transport.Waiter.Together). Small data goes out together when the
// last of the ranks has submitted its part: each part by itself would cost a send, and a wake-up of a receiver that
// waits for the other parts anyway. This delays no rank, as the rail's own rank is one of the senders, and sends in the
// same operation. If data of two rounds is queued, it goes out at once: ranks of other nodes need the earlier round's
// data before they can reach the later round.
type coalescer struct {
	all   uint64 // the local ranks that the rail sends for, a bit each
	round uint64 // the last round with data
	have  uint64 // the ranks whose data has been submitted, a bit each
	large bool   // data was submitted that is not worth holding back
	mixed bool   // data of an earlier round is queued, by itself or with this round's: it is overdue
	since time.Duration
}

// maxCoalesce bounds the wait for other ranks: a rank should not look as if it had sent nothing because another one is
// late. If the rail's rank is in no operation, the Proxy's goroutine sends the data; it looks every lookEvery.
const (
	maxCoalesce = 10 * time.Millisecond
	lookEvery   = 50 * time.Millisecond
)

// add adds an operation of a local rank. alone says that no other operation is queued. A part that is submitted after a
// later round's data was sent is overdue even if it is alone.
func (g *coalescer) add(o *op, index int, alone bool) {
	g.mixed = o.round < g.round || !alone && (g.mixed || o.round > g.round)
	if o.round > g.round {
		g.round, g.have, g.large, g.since = o.round, 0, false, 0
	}
	if o.round == g.round {
		g.have |= 1 << (index % 64)
	}
	g.large = g.large || len(o.data) > packBytes || o.kind != kindData
}

// waits reports whether to wait for the data of other ranks in this round or, if only data of a later round is there,
// in that one.
func (g *coalescer) waits(round uint64, now time.Duration) bool {
	if round == 0 || g.round < round || g.have == g.all || g.large || g.mixed {
		return false
	}
	if g.since == 0 {
		g.since = now
	}
	return now-g.since < maxCoalesce
}

// waitsForOthers returns coalescer.waits for the current time.
func (r *rail) waitsForOthers(round uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.coalescer.waits(round, transport.Clock())
}

// late reports whether data has waited for too long.
func (r *rail) late() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queue.head != nil && r.coalescer.since != 0 && transport.Clock()-r.coalescer.since >= maxCoalesce
}
