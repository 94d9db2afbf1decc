package fabric

import (
	"sync"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport/inproc"
)

// hub is where ranks of one process meet. The first of a pair makes the connection and leaves the other end
// there.
type hub struct {
	mu    sync.Mutex
	comms map[lifecycle.CommID]*meeting
}

// meeting is what the hub knows of one communicator, as long as ranks of it may come.
type meeting struct {
	expected int // Ports that are neither connected nor closed
	left     map[end]*inproc.Conn
}

// end is an end of a connection that its rank has not taken yet.
type end struct{ rank, peer int }

// expect says that a rank of comm may come.
func (h *hub) expect(comm lifecycle.CommID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.comms[comm]
	if m == nil {
		m = &meeting{left: make(map[end]*inproc.Conn)}
		h.comms[comm] = m
	}
	m.expected++
}

// settle says that a rank that was expected has taken all its ends, or will not come. After the last one, what is left
// belongs to ranks that will not come, and is closed, so that their peers know.
func (h *hub) settle(comm lifecycle.CommID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.comms[comm]
	if m.expected--; m.expected > 0 {
		return
	}
	delete(h.comms, comm)
	for _, c := range m.left {
		c.Revoke()
	}
}

// take returns rank self's end of its connection with rank peer. self must be expected.
func (h *hub) take(comm lifecycle.CommID, self, peer int) *inproc.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	left, mine := h.comms[comm].left, end{self, peer}
	c := left[mine]
	if c == nil {
		c, left[end{peer, self}] = inproc.Pair(self, peer)
	}
	delete(left, mine)
	return c
}
