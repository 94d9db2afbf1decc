package fabric

import (
	"sync"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/inproc"
)

// hub connects the ranks of one process. The first of a pair makes the connection and leaves the other end in the hub.
type hub struct {
	mu    sync.Mutex
	comms map[lifecycle.CommID]*meeting
}

// meeting is the hub's state of one communicator, as long as ranks of it may come. Ports are identified by the gates in
// their cards.
type meeting struct {
	expected int // Ports that are neither connected nor closed
	left     map[end]*inproc.Conn
	gaveUp   map[door.Room]transport.Notice // Ports that won't come, and why
}

// end identifies an end of a connection that its Port has not taken yet.
type end struct{ port, peer door.Room }

// expect announces that a rank of comm may come.
func (h *hub) expect(comm lifecycle.CommID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.comms[comm]
	if m == nil {
		m = &meeting{left: make(map[end]*inproc.Conn), gaveUp: make(map[door.Room]transport.Notice)}
		h.comms[comm] = m
	}
	m.expected++
}

// settle records that an expected Port has taken all its ends, or, with why, that it will not come: all its peers are
// told why, also those that connect later.
func (h *hub) settle(comm lifecycle.CommID, port door.Room, why *transport.Notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.comms[comm]
	if why != nil {
		m.gaveUp[port] = *why
		for e, c := range m.left {
			if e.port == port {
				c.Notify(*why)
				c.Revoke()
				delete(m.left, e)
			}
		}
	}
	if m.expected--; m.expected == 0 {
		delete(h.comms, comm)
	}
}

// take returns rank self's end of its connection to rank peer. The Port of rank self must be expected.
func (h *hub) take(comm lifecycle.CommID, port, other door.Room, self, peer int) *inproc.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, mine := h.comms[comm], end{port, other}
	if c := m.left[mine]; c != nil {
		delete(m.left, mine)
		return c
	}
	c, theirs := inproc.Pair(self, peer)
	if why, gone := m.gaveUp[other]; gone {
		theirs.Notify(why)
		theirs.Revoke()
	} else {
		m.left[end{other, port}] = theirs
	}
	return c
}
