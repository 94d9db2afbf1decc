package proxy

import (
	"time"

	"github.com/carillon-rt/carillon/runtime/transport"
)

// coalescer collects the small data of a round: an operation in which each of the ranks that a rail sends for sends
// something to the peer, which needs all of it (see transport.Waiter.Together). Small data goes out together, when the
// last of the ranks has submitted its part: alone, each part would cost a send, and a wake-up of a receiver that waits
// for the others anyway. It delays no rank, as the rail's own rank is one of them, and sends in the same operation.
// Data of two rounds goes out at once: ranks of other nodes need what is of the earlier one to get as far as the later
// one.
type coalescer struct {
	all   uint64 // the local ranks that the rail sends for, a bit each
	round uint64 // the last round with data
	have  uint64 // the ranks whose data has come, a bit each
	large bool   // data came that is not worth waiting with
	mixed bool   // data of two rounds is queued, or of one before: what is of the earlier one is overdue
	since time.Duration
}

// maxCoalesce bounds the wait for other ranks: a rank should not look as if it had sent nothing because another one is
// late. If the rail's rank is in no operation, the Proxy's goroutine sends the data, which looks at intervals of
// lookEvery.
const (
	maxCoalesce = 10 * time.Millisecond
	lookEvery   = 50 * time.Millisecond
)

// add adds an operation of a local rank. alone says that no other is queued. A part that comes late, when what is of a
// later round was sent, is overdue also then.
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

// waits tells whether to wait for the data of others in this round or, if all that has come is of a later one, in that.
func (g *coalescer) waits(round uint64, now time.Duration) bool {
	if round == 0 || g.round < round || g.have == g.all || g.large || g.mixed {
		return false
	}
	if g.since == 0 {
		g.since = now
	}
	return now-g.since < maxCoalesce
}

// waitsForOthers is coalescer.waits at this moment.
func (r *rail) waitsForOthers(round uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.coalescer.waits(round, transport.Clock())
}

// late tells whether data has waited for too long.
func (r *rail) late() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queue.head != nil && r.coalescer.since != 0 && transport.Clock()-r.coalescer.since >= maxCoalesce
}
