package host

import (
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// group is a set of concurrent sends and receives in progress. It is reused by the next group.
//
// Between two ranks, the operations of each direction run in the order of their calls. A rank first sends a peer the
// headers of all its receives, then its sends. So two ranks that wait for each other can detect that.
type group struct {
	e      *Engine
	ops    []engine.Op
	active []*link
}

// pairLink is the progress of a group with one peer.
type pairLink struct {
	sends, recvs []int // indices of the group's operations with this peer
	named        int   // receives whose header was sent
	begun        int   // sends whose header was sent
	acked        int   // sends whose receive's header has arrived
	ended        int   // receives that are done
	in           int   // bytes of the current receive that have arrived
	inside       bool  // the header of the current receive's send has arrived

	data []byte // unsent data of the last begun send

	early []header // headers of receives for which this rank has not called a send yet
}

// maxEarly bounds how far a peer may be ahead: the receives that it has called while this rank has not called the
// sends.
const maxEarly = 1 << 12

// together carries out point-to-point operations concurrently.
func (e *Engine) together(ops []engine.Op) error {
	for send, recv := range engine.ToSelf(ops, e.rank) {
		copyBytes(recv.Recv, send.Send, len(send.Send))
	}
	e.g.begin(ops)
	defer func() { e.g.ops = nil }()
	return e.drive(&e.g)
}

func (g *group) begin(ops []engine.Op) {
	g.ops, g.active = ops, g.active[:0]
	for i := range ops {
		if ops[i].Peer == g.e.rank {
			continue
		}
		l := g.e.all[ops[i].Peer]
		if len(l.pair.sends)+len(l.pair.recvs) == 0 {
			l.reset()
			g.active = append(g.active, l)
		}
		l.pair.add(i, ops[i].Call)
	}
}

func (p *pairLink) add(i int, call lifecycle.Call) {
	if call == lifecycle.CallSend {
		p.sends = append(p.sends, i)
	} else {
		p.recvs = append(p.recvs, i)
	}
}

// end resets the counters for the next group.
func (p *pairLink) end() {
	p.sends, p.recvs = p.sends[:0], p.recvs[:0]
	p.named, p.begun, p.acked, p.ended, p.in, p.inside = 0, 0, 0, 0, 0, false
}

func (g *group) pass() (moved, done bool, err error) {
	left := g.active[:0]
	for _, l := range g.active {
		m, err := g.advance(l)
		if err != nil {
			return false, false, err
		}
		moved = moved || m
		if g.finished(l) {
			l.pair.end()
		} else {
			left = append(left, l)
		}
	}
	g.active = left
	return moved, len(g.active) == 0, nil
}

func (g *group) finished(l *link) bool {
	p := &l.pair
	return len(l.rest) == 0 && len(p.data) == 0 && p.named == len(p.recvs) && p.begun == len(p.sends) && g.satisfied(l)
}

func (g *group) advance(l *link) (moved bool, err error) {
	for len(l.rest) > 0 || g.stage(l) {
		n, err := l.flush()
		if err != nil {
			return false, g.e.lost(l.rank, err)
		}
		moved = moved || n > 0
		if len(l.rest) > 0 {
			break
		}
	}
	taken, err := g.take(l)
	return moved || taken, err
}

// stage prepares the next data for a peer: the headers of all receives, then each send's header, data and padding. It
// returns false when there is nothing more.
func (g *group) stage(l *link) bool {
	p := &l.pair
	if whole := wholeWords(len(p.data)); whole > 0 {
		l.rest, p.data = p.data[:whole], p.data[whole:]
		return true
	}
	n := packMessage(l.stage[:], p.data)
	p.data = nil
	for p.named < len(p.recvs) && n+headerSize <= stageSize {
		h := g.recvHeader(p, p.named)
		h.Put(l.stage[n:])
		n += headerSize
		p.named++
	}
	for p.named == len(p.recvs) && p.begun < len(p.sends) && n+headerSize <= stageSize && len(p.data) == 0 {
		h := g.sendHeader(p, p.begun)
		h.Put(l.stage[n:])
		n += headerSize
		i := p.sends[p.begun]
		p.begun++
		data := g.ops[i].Send[:g.bytes(i)]
		if n+len(data)+wordSize <= stageSize {
			n += packMessage(l.stage[n:], data)
		} else {
			p.data = data
		}
	}
	l.rest = l.stage[:n]
	return n > 0
}

func (g *group) bytes(i int) int { return g.ops[i].Count * g.ops[i].DataType.Size() }

// sendHeader and recvHeader return the header of a group's i-th send to and i-th receive from a peer.

func (g *group) sendHeader(p *pairLink, i int) header {
	op := &g.ops[p.sends[i]]
	return engine.Sign(op.Call, op, op.Seq, algo.Auto)
}

func (g *group) recvHeader(p *pairLink, i int) header {
	op := &g.ops[p.recvs[i]]
	return engine.Sign(op.Call, op, op.Seq, algo.Auto).Beside(len(p.sends))
}

// take processes what has arrived from a peer, and the headers that arrived too early for previous groups.
func (g *group) take(l *link) (moved bool, err error) {
	p := &l.pair
	for p.acked < len(p.sends) && len(p.early) > 0 {
		h := p.early[0]
		p.early = p.early[:copy(p.early, p.early[1:])]
		if err := g.met(l, &h); err != nil {
			return false, err
		}
	}
	if g.satisfied(l) {
		return false, nil // anything that arrives now belongs to the next operation
	}
	if p.inside {
		if rest := g.ops[p.recvs[p.ended]].Recv[p.in:g.bytes(p.recvs[p.ended])]; l.placeable(len(rest)) {
			l.place(rest)
		}
	}
	collective := g.e.posted(l.rank)
	window, err := l.peek()
	if len(window) == 0 {
		if err != nil {
			return false, g.e.lost(l.rank, err)
		}
		if collective != nil { // the peer posts after all that it has sent
			h := engine.GetSignature(collective)
			return false, g.mismatch(l, &h)
		}
		return false, nil
	}
	used := 0
	for !g.satisfied(l) {
		n, err := g.consume(l, window[used:])
		if err != nil {
			return false, err
		}
		if n == 0 {
			break
		}
		used += n
	}
	if used > 0 {
		l.release(used)
	}
	return used > 0, nil
}

// posted returns a rank's post of the next collective, or nil if there is none yet.
func (e *Engine) posted(rank int) []byte {
	if e.board == nil {
		return nil
	}
	return e.board.Posted(rank, e.posts+1)
}

// satisfied reports whether everything expected from a peer has arrived.
func (g *group) satisfied(l *link) bool {
	return l.pair.acked == len(l.pair.sends) && l.pair.ended == len(l.pair.recvs)
}

// consume processes the next piece of a window, data or a header, and returns how many bytes it used: 0 if there are
// too few.
func (g *group) consume(l *link, window []byte) (int, error) {
	if l.pair.inside {
		return g.data(l, window), nil
	}
	h, n, ok := l.header(window)
	if !ok {
		return n, nil
	}
	return n, g.met(l, &h)
}

func (g *group) data(l *link, window []byte) int {
	p := &l.pair
	op := &g.ops[p.recvs[p.ended]]
	size := g.bytes(p.recvs[p.ended])
	n, used := portion(window, p.in, size, size)
	copyBytes(op.Recv[p.in:p.in+n], window[:n], size)
	if p.in += n; p.in == size {
		p.ended, p.in, p.inside, l.placed = p.ended+1, 0, false, false
	}
	return used
}

// met handles the header of a peer's send or receive.
func (g *group) met(l *link, h *header) error {
	p := &l.pair
	switch receives := h.Call() == lifecycle.CallRecv; {
	case !h.IsMessage():
		return g.mismatch(l, h)
	case receives && p.acked < len(p.sends):
		mine := g.sendHeader(p, p.acked)
		p.acked++
		return g.compare(l, &mine, h)
	case receives && (h.Sends() == 0 || len(p.early) == maxEarly):
		return g.mismatch(l, h)
	case receives:
		p.early = append(p.early, *h)
		return nil
	case p.ended < len(p.recvs):
		mine := g.recvHeader(p, p.ended)
		if g.bytes(p.recvs[p.ended]) == 0 {
			p.ended++
		} else {
			p.inside = true
		}
		return g.compare(l, &mine, h)
	}
	return g.mismatch(l, h)
}

// compare rejects a send and a receive that don't match.
func (g *group) compare(l *link, mine, theirs *header) error {
	if mine.Meets(theirs) {
		return nil
	}
	detail := engine.MessageMismatch(g.e.rank, mine, l.rank, theirs, len(g.ops) == 1)
	return g.e.comm.PeerError(lifecycle.CodeMismatch, l.rank, detail)
}

// mismatch returns the error of this rank and a peer that would wait for each other forever.
func (g *group) mismatch(l *link, theirs *header) error {
	var mine header
	if p := &l.pair; p.acked < len(p.sends) {
		mine = g.sendHeader(p, p.acked)
	} else {
		mine = g.recvHeader(p, p.ended)
	}
	detail := engine.MessageMismatch(g.e.rank, &mine, l.rank, theirs, len(g.ops) == 1)
	return g.e.comm.PeerError(lifecycle.CodeMismatch, l.rank, detail)
}

func (g *group) waitsFor() int {
	if len(g.active) == 0 {
		return -1
	}
	return g.active[0].rank
}

// wants returns how many bytes must still come from a rank: headers of the receives that match this rank's sends, and
// sends.
func (g *group) wants(rank int) int {
	l := g.e.all[rank]
	p := &l.pair
	if !slices.Contains(g.active, l) {
		return 0
	}
	if len(l.rest) > 0 || len(p.data) > 0 || p.named < len(p.recvs) || p.begun < len(p.sends) {
		return endless
	}
	n := (len(p.sends)-p.acked)*headerSize - l.got
	for _, i := range p.recvs[p.ended:] {
		size := g.bytes(i)
		n += headerSize + size + padding(size)
	}
	if p.inside {
		n -= headerSize + p.in
	}
	return n
}

// agreed reports whether only data is still missing.
func (g *group) agreed() bool {
	for _, l := range g.active {
		if p := &l.pair; p.acked < len(p.sends) || p.ended < len(p.recvs) && !p.inside {
			return false
		}
	}
	return true
}
