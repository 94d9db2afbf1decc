package proxy

import (
	"os"

	"golang.org/x/sys/unix"
)

// The last slots of a segment have a pipe each. A pipe is empty as long as its slot is free.
const (
	pipedSlots = 32
	firstPiped = sharedSlots - pipedSlots

	// pipedBytes is the least data that goes through a pipe.
	pipedBytes = 16 << 10
)

// inPipe stands for data that is in a pipe. Only its length counts.
var inPipe [stepBytes]byte

// openPipes makes the pipes of the segment, unless it has some.
func (p *Proxy) openPipes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.pipes {
		if p.pipes[i].Load() != nil {
			return
		}
		pipe, place, err := makePipe()
		if err != nil { // the user has too many files or pipes: the other slots have memory alone
			return
		}
		p.pipes[i].Store(pipe)
		p.segment.pipes[i].Store(place)
	}
}

// pipe is the pipe of a slot, nil for none.
func (p *Proxy) pipe(slot int) *os.File {
	if slot < firstPiped {
		return nil
	}
	return p.pipes[slot-firstPiped].Load()
}

// pour claims a slot with a pipe for c, and writes p there, as much as is sent in one step. It returns how much that
// is, and slot -1 if there is no such slot.
func (m *neighbour) pour(c *Conn, p []byte) (slot, n int) {
	if len(p) < pipedBytes || m.segment.pipes[0].Load() == 0 {
		return -1, 0
	}
	own := ownerOf(m.p.pid, c.number)
	slot = m.segment.claim(own, firstPiped)
	if slot < 0 {
		return -1, 0
	}
	if fd := m.inlet(slot - firstPiped); fd >= 0 {
		n, _ = unix.Write(fd, p[:min(len(p), stepBytes)])
	}
	if n <= 0 {
		m.segment.free(slot, own)
		return -1, 0
	}
	return slot, n
}

// inlet is the descriptor of a pipe of m's, for writing; -1 if it can't be opened.
func (m *neighbour) inlet(i int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inlets[i] == 0 {
		m.inlets[i] = -1
		if place := m.segment.pipes[i].Load(); place != 0 {
			m.inlets[i], _ = openPipe(m.pid, place)
		}
	}
	return m.inlets[i]
}

func (m *neighbour) closeInlets() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, fd := range m.inlets {
		if fd > 0 {
			_ = unix.Close(fd)
		}
		m.inlets[i] = -1
	}
}
