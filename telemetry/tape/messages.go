package tape

import (
	"runtime"
	"sync/atomic"
)

// messageCounter counts a communicator's messages in its slot.
type messageCounter struct {
	of      *marked // nil: the slot has no room for counts, or was given back
	used    int     // entries
	at      int     // the entry of the last message
	highest int32   // of the ranks that have an entry
}

// open begins to count for the communicator with this number. Entries of the slot's earlier owner have another number.
func (m *messageCounter) open(of *marked, number uint32) {
	m.of = of
	atomic.StoreUint64(&of.counted.rank, pack32(-1, int32(number)))
}

// entry returns the counts of messages with a rank; nil if there is no room for them.
func (m *messageCounter) entry(rank int32, number uint32) *peer {
	if m.of == nil || m.used == maxPeers && rank > m.highest {
		return nil
	}
	is := pack32(rank, int32(number))
	for range m.used { // usually the rank of the last message, or of the one after it
		if m.of.peers[m.at].rank == is {
			return &m.of.peers[m.at]
		}
		if m.at++; m.at >= m.used {
			m.at = 0
		}
	}
	if m.used == maxPeers {
		return nil
	}
	m.at = m.used
	m.used, m.highest = m.used+1, max(m.highest, rank)
	p := &m.of.peers[m.at]
	atomic.StoreUint64(&p.counts, 0)
	atomic.StoreUint64(&p.rank, is)
	return p
}

// Messages puts into the communicator's slot how many messages with another rank this rank has called for in all,
// single ones and those of groups. The slot has room for the first 63 ranks. It is for the goroutine that writes
// operations.
func (c *CommWriter) Messages(rank int, sent, received uint64) {
	if c == nil {
		return
	}
	if p := c.messages.entry(int32(rank), c.number); p != nil {
		atomic.StoreUint64(&p.counts, uint64(uint32(sent))|received<<32)
	}
	runtime.KeepAlive(c) // and so the mapping
}

// counts returns the counts of messages with the first 63 ranks; nil without a slot that has room for them, or after
// Close.
func (c *CommWriter) counts() []PeerMessages {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.index < 0 || c.index >= len(c.w.marked) {
		return nil
	}
	counts := make([]PeerMessages, 0, maxPeers)
	for i := range c.w.marked[c.index].peers {
		p := &c.w.marked[c.index].peers[i]
		rank := atomic.LoadUint64(&p.rank)
		if uint32(rank>>32) != c.number {
			break
		}
		n := atomic.LoadUint64(&p.counts)
		counts = append(counts, PeerMessages{low32(rank), uint32(n), uint32(n >> 32)})
	}
	return counts
}
