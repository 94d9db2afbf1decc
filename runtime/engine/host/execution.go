package host

import (
	"slices"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// pieceSize is the most that a step takes from a window at a time, in bytes. It is small enough that what the step read
// and wrote is still in the core's cache when the next step sends it on, and large enough that the cost of a pass is
// negligible.
const pieceSize = 256 << 10

// execution is a collective in progress. It is reused by the next collective.
type execution struct {
	e      *Engine
	p      *plan
	bufs   [3][]byte // by algo.Buffer
	done   []int     // by step: bytes done
	reduce kernels.Reducer
	open   bool    // the ranks agree: the user's memory may be written
	unmet  int     // headers that have not arrived yet
	odd    bool    // a header arrived that differs from ours
	own    header  // this rank's header
	active []*link // links with work left
	local  int     // local steps that have ended
	number uint64  // number of every rank's first post for this collective
}

// run carries out the collective that Begin has begun.
func (x *execution) run(op *engine.Op) error {
	e, p := x.e, x.p
	e.scratch = grow(e.scratch, p.tmp)
	x.bufs[algo.Tmp] = e.scratch
	x.odd, x.open, x.unmet = false, e.size == 1, e.size-1
	if op.Call.Reduces() {
		x.reduce = kernels.ReducerOf(op.DataType, op.Reduction)
	}
	if cap(x.done) < len(p.steps) {
		x.done = make([]int, len(p.steps))
	}
	x.done = x.done[:len(p.steps)]
	clear(x.done)
	x.local = 0
	x.active = x.active[:0]
	if e.board != nil {
		x.expectPosts()
		if err := x.glance(); err != nil {
			return x.told(err)
		}
	} else if e.size <= maxHeaders {
		if err := x.sendHeaders(); err != nil {
			return x.told(err)
		}
	} else if err := e.agree(x.own, p); err != nil {
		return err
	} else {
		x.join()
	}
	return x.told(e.drive(x))
}

// post posts the header for all other ranks, and the input if the plan reads posts.
func (x *execution) post() {
	e := x.e
	var head [headerSize]byte
	x.own.Put(head[:])
	var body []byte
	if x.p.algorithm == algo.OneShot || x.p.algorithm == algo.TwoShot {
		body = x.bufs[algo.In]
	}
	e.posts++
	x.number = e.posts
	e.board.Post(x.number, head[:], body)
}

// expectPosts makes all other ranks active.
func (x *execution) expectPosts() {
	e := x.e
	for _, r := range e.others {
		l := e.all[r]
		l.reset()
		x.active = append(x.active, l)
		if len(l.pair.early) > 0 {
			x.meet(l, &l.pair.early[0])
		}
	}
}

// glance polls the posts of the other ranks for a moment, without looking at anything else. If the ranks call an
// operation at about the same time, that is all it takes. It lasts only while it keeps no core from other ranks.
func (x *execution) glance() error {
	looks := x.e.waiter.Looks()
	for _, l := range x.active {
		for !l.met && !x.look(l) {
			if looks--; looks <= 0 {
				return x.glanceInTurn()
			}
			x.e.board.Expect(l.rank, x.number, headerSize+len(x.bufs[algo.In]))
		}
	}
	x.e.waiter.Saw()
	x.seen()
	return nil
}

// seen ends a glance that has found all posts.
func (x *execution) seen() {
	if len(x.p.peers) == 0 && !x.odd {
		x.active = x.active[:0]
	}
}

// turns is how often at most a rank yields its core in a glance. Where ranks share a core, a small operation needs
// about as many turns of each rank as there are ranks on the core.
const turns = 8

// glanceInTurn continues a glance after its first moment, if the rank can do nothing else before all have posted.
// Between two looks, the rank yields its core to the ranks that share it.
func (x *execution) glanceInTurn() error {
	if len(x.p.peers) > 0 {
		return nil
	}
	left := x.active
	for range turns {
		if err := x.e.idle(x); err != nil {
			return err
		}
		for len(left) > 0 && (left[0].met || x.look(left[0])) {
			left = left[1:]
		}
		switch {
		case len(left) == 0:
			x.e.proceed()
			x.seen()
			return nil
		case !x.e.w.since.IsZero(): // the rank has slept: this wait is no longer short
			return nil
		}
	}
	return nil
}

// look checks whether a rank has posted its header, if that was not known, and reports whether it found a new one.
func (x *execution) look(l *link) bool {
	if l.met || x.e.board == nil {
		return false
	}
	post := x.e.board.Posted(l.rank, x.number)
	if post == nil {
		return false
	}
	h := engine.GetSignature(post)
	x.meet(l, &h)
	return true
}

// sendHeaders makes all other ranks active, the nearest first. It sends each one the header, with the first message
// right behind it if that is small. All headers go out before any large message: a rank that has all headers may write
// to its user's memory.
func (x *execution) sendHeaders() error {
	e := x.e
	for _, r := range e.others {
		l := e.all[r]
		l.reset()
		x.active = append(x.active, l)
		if first := x.first(l.rank); first == algo.None {
			l.pack(&x.own, nil)
		} else if s := &x.p.steps[first]; l.pack(&x.own, x.bufs[s.Src.Buf][s.Src.Off:s.Src.Off+s.n]) {
			x.done[first] = s.n
			l.sent = 1
		}
		if len(l.pair.early) > 0 {
			x.meet(l, &l.pair.early[0])
		}
	}
	for _, l := range x.active {
		if _, err := l.flush(); err != nil {
			return x.e.lost(l.rank, err)
		}
	}
	return nil
}

// first returns the first send to a rank, if the send waits for nothing.
func (x *execution) first(rank int) int {
	if len(x.p.sends[rank]) > 0 {
		i := x.p.sends[rank][0]
		if s := &x.p.steps[i]; s.After == algo.None && s.Wait.From == s.Wait.To {
			return i
		}
	}
	return algo.None
}

// join makes the ranks that the plan involves active. All ranks have already agreed.
func (x *execution) join() {
	x.open = true
	for _, r := range x.p.peers {
		l := x.e.all[r]
		l.reset()
		l.met = true
		x.active = append(x.active, l)
	}
}

// pass moves as much as possible over the active links and in local steps.
func (x *execution) pass() (moved, done bool, err error) {
	left := x.active[:0]
	for _, l := range x.active {
		m, err := x.advance(l)
		if err != nil || x.odd {
			return moved, x.odd, err
		}
		moved = moved || m
		if !x.finished(l) {
			left = append(left, l)
		}
	}
	x.active = left
	for x.local < len(x.p.local) && x.step(x.p.local[x.local]) {
		moved = true
	}
	return moved, len(x.active) == 0 && x.local == len(x.p.local), nil
}

// advance moves as much as possible to and from one peer.
func (x *execution) advance(l *link) (moved bool, err error) {
	sent, err := x.send(l)
	if err != nil {
		return false, x.e.lost(l.rank, err)
	}
	taken, err := x.take(l)
	if err != nil {
		return false, x.e.lost(l.rank, err)
	}
	return sent || taken, nil
}

// finished reports whether nothing more goes to or comes from a peer.
func (x *execution) finished(l *link) bool {
	return len(l.rest) == 0 && l.step == algo.None && l.met &&
		l.sent == len(x.p.sends[l.rank]) && l.taken == len(x.p.recvs[l.rank])
}

// send hands as much as possible to the transport, in the order of the plan.
func (x *execution) send(l *link) (moved bool, err error) {
	for {
		if len(l.rest) > 0 {
			n, err := l.flush()
			if err != nil {
				return false, err
			}
			if l.step != algo.None {
				if x.done[l.step] += n; x.done[l.step] == x.p.steps[l.step].n {
					l.step = algo.None
				}
			}
			moved = moved || n > 0
			if len(l.rest) > 0 {
				return moved, nil
			}
		}
		if !x.stage(l) {
			return moved, nil
		}
	}
}

// stage prepares the next data for a peer: the rest of a message, or a new message. It returns false if nothing can be
// sent now.
func (x *execution) stage(l *link) bool {
	if l.step == algo.None {
		list := x.p.sends[l.rank]
		if l.sent == len(list) {
			return false
		}
		l.step = list[l.sent]
		l.sent++
	}
	s := &x.p.steps[l.step]
	from, to := x.done[l.step], x.limit(s)
	message := x.bufs[s.Src.Buf][s.Src.Off : s.Src.Off+s.n]
	if to == s.n && padding(s.n) > 0 && s.n-from <= stageSize-wordSize {
		// A message's last part goes out together with its padding.
		l.rest = l.stage[:packMessage(l.stage[:], message[from:])]
		x.done[l.step] = s.n
		l.step = algo.None
		return true
	}
	l.rest = message[from:max(from, wholeWords(to))]
	return len(l.rest) > 0
}

// limit returns how many of a step's bytes may be done by now.
func (x *execution) limit(s *step) int {
	if s.opens && !x.open {
		return 0
	}
	for i := s.Wait.From; i < s.Wait.To; i++ {
		if x.done[i] < x.p.steps[i].n {
			return 0
		}
	}
	if s.After != algo.None {
		return x.done[s.After]
	}
	return s.n
}

// take processes what has arrived from a peer: its header, then the plan's messages.
func (x *execution) take(l *link) (moved bool, err error) {
	moved = x.look(l)
	if l.met && l.taken == len(x.p.recvs[l.rank]) {
		return moved, nil
	}
	x.place(l)
	window, err := l.peek()
	if (len(window) > 0 || err != nil) && x.look(l) { // the peer posted before it sent this, or left
		return true, nil
	}
	if len(window) == 0 {
		return moved, err
	}
	used := 0
	if !l.met {
		h, n, ok := l.header(window)
		if used = n; ok {
			x.meet(l, &h)
		}
	}
	list := x.p.recvs[l.rank]
	for l.met && !x.odd && l.taken < len(list) {
		i := list[l.taken]
		n := x.consume(i, &x.p.steps[i], window[used:])
		used += n
		if x.done[i] == x.p.steps[i].n {
			l.taken++
			l.placed = false
		} else if n == 0 || n == pieceSize {
			break // there is no more, or it is another link's turn
		}
	}
	if used > 0 {
		l.release(used)
	}
	return moved || used > 0, nil
}

// place makes the transport write the rest of a peer's next message directly to its destination, if the message is only
// copied.
func (x *execution) place(l *link) {
	if !l.met || x.odd {
		return
	}
	i := x.p.recvs[l.rank][l.taken]
	s, from := &x.p.steps[i], x.done[i]
	if l.placeable(s.n-from) && s.Kind == algo.StepRecv && x.limit(s) == s.n {
		l.place(x.bufs[s.Dst.Buf][s.Dst.Off+from:][:s.n-from])
	}
}

func (x *execution) meet(l *link, h *header) {
	l.met = true
	x.unmet--
	if l.odd = *h != x.own; l.odd {
		l.head = *h
		x.odd = true
	}
	x.open = x.unmet == 0 && !x.odd
}

// consume runs a receiving step on as much of a window as it may, and returns how many bytes of the window it used.
func (x *execution) consume(i int, s *step, window []byte) int {
	from := x.done[i]
	n, used := portion(window, from, min(x.limit(s), from+pieceSize), s.n)
	if n <= 0 {
		return 0
	}
	dst, came := x.bufs[s.Dst.Buf][s.Dst.Off+from:][:n], window[:n]
	if s.Kind == algo.StepRecv {
		copyBytes(dst, came, s.whole)
	} else {
		left, right := x.bufs[s.Src.Buf][s.Src.Off+from:][:n], came
		if s.IncomingFirst {
			left, right = right, left
		}
		x.reduce(dst, left, right)
	}
	x.done[i] = from + n
	return used
}

// step runs a piece of the first local step that has not ended, and reports whether it could do anything.
func (x *execution) step(i int) bool {
	s := &x.p.steps[i]
	from := x.done[i]
	n := x.limit(s) - from
	if s.Kind != algo.StepPost {
		n = min(n, pieceSize)
	}
	if from+n < s.n {
		n = wholeWords(n)
	}
	if n <= 0 || x.unposted(s) {
		return false
	}
	src := x.source(s, s.Src)[from:][:n]
	switch s.Kind { //nolint:exhaustive // all others are no local steps
	case algo.StepCopy:
		copyBytes(x.bufs[s.Dst.Buf][s.Dst.Off+from:][:n], src, s.whole)
	case algo.StepReduce:
		x.reduce(x.bufs[s.Dst.Buf][s.Dst.Off+from:][:n], src, x.source(s, s.Src2)[from:][:n])
	case algo.StepPost: // posted as a whole, since its Wait has ended
		x.e.posts++
		x.e.board.Post(x.e.posts, nil, src)
	}
	if x.done[i] = from + n; x.done[i] == s.n {
		x.local++
	}
	return true
}

// source returns the memory of a span that a local step reads.
func (x *execution) source(s *step, sp algo.Span) []byte {
	if sp.Buf != algo.Posted {
		return x.bufs[sp.Buf][sp.Off:]
	}
	post := x.e.board.Posted(s.Peer, x.number+uint64(s.Round))
	if s.Round == 0 {
		post = post[headerSize:]
	}
	return post[sp.Off:]
}

// unposted reports whether a local step reads a later round's post that is not there yet.
func (x *execution) unposted(s *step) bool {
	return s.Round > 0 && s.Src.Buf == algo.Posted && x.e.board.Posted(s.Peer, x.number+uint64(s.Round)) == nil
}

// waitsFor returns the rank that blocks the operation, -1 if there is none: a rank whose header is missing, else a rank
// that has to send, else a rank that has to receive.
func (x *execution) waitsFor() int {
	takes := -1
	for _, l := range x.active {
		if !l.met {
			return l.rank
		}
	}
	for _, l := range x.active {
		if list := x.p.recvs[l.rank]; l.taken < len(list) &&
			x.limit(&x.p.steps[list[l.taken]]) > x.done[list[l.taken]] {
			return l.rank
		}
		if len(l.rest) > 0 {
			takes = l.rank
		}
	}
	if x.local < len(x.p.local) {
		if s := &x.p.steps[x.p.local[x.local]]; takes < 0 && x.unposted(s) {
			return s.Peer
		}
	}
	return takes
}

func (x *execution) agreed() bool { return x.open }

// wants returns how many bytes must still come from a rank.
func (x *execution) wants(rank int) int {
	l := x.e.all[rank]
	for _, i := range x.p.local[x.local:] {
		if s := &x.p.steps[i]; s.Peer == rank && x.unposted(s) {
			return endless
		}
	}
	if !slices.Contains(x.active, l) {
		return 0
	}
	if len(l.rest) > 0 || l.step != algo.None || l.sent < len(x.p.sends[rank]) {
		return endless
	}
	n := 0
	switch {
	case l.met:
	case x.e.board == nil:
		n = headerSize - l.got
	case x.e.board.Posted(rank, x.number) == nil:
		return endless
	}
	for _, i := range x.p.recvs[rank][l.taken:] {
		s := &x.p.steps[i]
		n += s.n + padding(s.n) - x.done[i]
	}
	return n
}
