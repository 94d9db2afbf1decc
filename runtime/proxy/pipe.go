package proxy

import (
	"os"

	"golang.org/x/sys/unix"
)

// Each of the last slots of a segment has a pipe of the segment's owner. The owner empties a pipe before it frees the
// slot.
const (
	pipedSlots = 8
	firstPiped = sharedSlots - pipedSlots

	// pipedBytes is the least data that goes through a pipe, and lentBytes the least that is lent to it rather than
	// copied.
	pipedBytes = 16 << 10
	lentBytes  = 128 << 10
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
		pipe, addr, err := makeStepPipe()
		if err != nil { // the user has too many files or pipes: the other slots only have memory
			return
		}
		p.pipes[i].Store(pipe)
		p.segment.pipes[i].Store(addr)
	}
}

// pipe returns the pipe of a slot, nil for none.
func (p *Proxy) pipe(slot int) *os.File {
	if slot < firstPiped {
		return nil
	}
	return p.pipes[slot-firstPiped].Load()
}

// writePipe claims a slot with a pipe for c, and lends p to the pipe or writes it there, up to one step, or copies it
// into the slot's memory if the pipe can't be opened. It returns how many bytes that is, and slot -1 if there is no
// such slot.
func (m *neighbour) writePipe(c *Conn, p []byte) (slot, n int, piped, lent bool) {
	if len(p) < pipedBytes || m.segment.pipes[0].Load() == 0 {
		return -1, 0, false, false
	}
	slot = m.segment.claim(ownerOf(m.p.pid, c.number), firstPiped)
	if slot < 0 {
		return -1, 0, false, false
	}
	if fd := m.writeEnd(slot - firstPiped); fd >= 0 {
		step := p[:min(len(p), stepBytes)]
		if len(step) >= lentBytes {
			n = lend(fd, step)
			lent = n > 0
		}
		if n <= 0 {
			n, _ = unix.Write(fd, step)
		}
	}
	if n > 0 {
		return slot, n, true, lent
	}
	return slot, copy(m.segment.bytes(slot), p), false, false
}

// writeEnd returns the descriptor of a pipe of m for writing; -1 if it can't be opened.
func (m *neighbour) writeEnd(i int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if addr := m.segment.pipes[i].Load(); m.writeEnds[i] == 0 && addr != 0 {
		m.writeEnds[i], _ = openPipe(m.pid, addr)
	}
	if m.writeEnds[i] == 0 {
		return -1
	}
	return m.writeEnds[i]
}

func (m *neighbour) closePipes() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, fd := range m.writeEnds {
		if fd > 0 {
			_ = unix.Close(fd)
		}
		m.writeEnds[i] = -1
	}
}
