package proxy

import (
	"time"

	"github.com/carillon-rt/carillon/runtime/transport"
)

// gather is how far the ranks are, for which a rail sends, with an operation in which each of them sends something to
// its peer, which needs it all (see transport.Waiter.Together). What is small of that goes out together, when the last
// of them has submitted its part: alone, each part would cost the sending and the waking of a receiver that waits for
// the others anyway. Nobody is done later by that, as the rail's own rank is one of them, and sends when it comes.
type gather struct {
	all   uint64 // the local ranks that it sends for, a bit each
	round uint64 // the last one of which something came
	came  uint64 // from whom
	large bool   // something came that is not worth waiting with
	since time.Duration
}

// longestGather is for how long what has come is kept: whoever looks at the job in the meantime should not think that a
// rank has sent nothing, because another one is late. If the rail's rank is in no operation, the Proxy's goroutine
// sends it, which looks each lookEvery.
const (
	longestGather = 10 * time.Millisecond
	lookEvery     = 50 * time.Millisecond
)

// add notes an operation of a local rank.
func (g *gather) add(o *op, index int) {
	if o.round > g.round {
		g.round, g.came, g.large, g.since = o.round, 0, false, 0
	}
	if o.round == g.round {
		g.came |= 1 << (index % 64)
	}
	g.large = g.large || len(o.data) > packBytes || o.kind != kindData
}

// waits says whether to wait for what others have to send in this round or, if some are ahead, in a later one.
func (g *gather) waits(round uint64, now time.Duration) bool {
	if round == 0 || g.round < round || g.came == g.all || g.large {
		return false
	}
	if g.since == 0 {
		g.since = now
	}
	return now-g.since < longestGather
}

// gathers is gather.waits now.
func (r *rail) gathers(round uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gather.waits(round, transport.Clock())
}

// late says whether something has waited for too long.
func (r *rail) late() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queue.head != nil && r.gather.since != 0 && transport.Clock()-r.gather.since >= longestGather
}
