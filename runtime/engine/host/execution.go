package host

import (
	"slices"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// pieceSize is the most that one step takes from a window at a time, in bytes: small enough that what it read and wrote
// is still in a core's cache when the next step sends it on, large enough that a pass costs nothing in comparison.
const pieceSize = 256 << 10

// execution is a collective in progress. It is reused by the next one.
type execution struct {
	e      *Engine
	p      *plan
	bufs   [3][]byte // by algo.Buffer
	done   []int     // by step: bytes done
	reduce kernels.Reducer
	open   bool    // the ranks agree: the user's memory may be written
	unmet  int     // headers that are still to come
	odd    bool    // a header came that is not as ours
	own    header  // ours
	active []*link // those that still have something to do
	local  int     // local steps that have ended
	number uint64  // of this rank's, and everyone's, first post
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

// post posts the header for all other ranks, and the input if the plan is one of posts.
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

// glance looks at the posts of the others for a moment, which is all that an operation takes whose ranks call it at
// about the same time: for as long as it costs nobody a core, and without looking at anything else.
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

// seen ends a glance that has seen all posts.
func (x *execution) seen() {
	if len(x.p.peers) == 0 && !x.odd {
		x.active = x.active[:0]
	}
}

// turns is how often a rank offers its core in a glance, at most. Where ranks share a core, a small operation needs
// about as many turns of each as there are ranks that share it.
const turns = 8

// glanceInTurn goes on with a glance after its first moment, if there is nothing else to do before all have posted.
// Between two looks the rank offers its core to those that share it.
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
		case !x.e.w.since.IsZero(): // it has slept: this is no moment any more
			return nil
		}
	}
	return nil
}

// look sees whether a rank has posted its header, if that hasn't been seen.
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

// sendHeaders makes all other ranks active, with the header as what each gets first, and right behind it the first
// message if that is small. The nearest rank is first. All headers go out before any large message: a rank that has
// them all may write to its user's memory.
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

// first is the first send to a rank, if it has nothing to wait for.
func (x *execution) first(rank int) int {
	if len(x.p.sends[rank]) > 0 {
		i := x.p.sends[rank][0]
		if s := &x.p.steps[i]; s.After == algo.None && s.Wait.From == s.Wait.To {
			return i
		}
	}
	return algo.None
}

// join makes the ranks that the plan has to do with active. All have agreed before.
func (x *execution) join() {
	x.open = true
	for _, r := range x.p.peers {
		l := x.e.all[r]
		l.reset()
		l.met = true
		x.active = append(x.active, l)
	}
}

// pass moves what can be moved over the active links, and in local steps.
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

// advance moves what can be moved to and from one peer.
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

// finished says whether nothing more goes to or comes from a peer.
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

// stage finds what goes out to a peer next: the rest of a message, or a new one; false if there is nothing now.
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
		// What needs padding goes out with it, in one piece.
		l.rest = l.stage[:packMessage(l.stage[:], message[from:])]
		x.done[l.step] = s.n
		l.step = algo.None
		return true
	}
	l.rest = message[from:max(from, wholeWords(to))]
	return len(l.rest) > 0
}

// limit is how many of a step's bytes may be done by now.
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

// take uses what has come from a peer: its header, then the plan's messages.
func (x *execution) take(l *link) (moved bool, err error) {
	moved = x.look(l)
	if l.met && l.taken == len(x.p.recvs[l.rank]) {
		return moved, nil
	}
	x.place(l)
	window, err := l.peek()
	if (len(window) > 0 || err != nil) && x.look(l) { // it posted before it sent this, or went
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
			break // there is no more, or it is the others' turn
		}
	}
	if used > 0 {
		l.release(used)
	}
	return moved || used > 0, nil
}

// place has the rest of the message that comes next from a peer written where it belongs, if it is copied as it is.
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

// consume does a receiving step with as much of a window as it may, and returns how much of the window that was.
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

// step does a piece of the first local step that has not ended, and says whether there was any to do.
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
	case algo.StepPost: // as a whole, since its Wait has ended
		x.e.posts++
		x.e.board.Post(x.e.posts, nil, src)
	}
	if x.done[i] = from + n; x.done[i] == s.n {
		x.local++
	}
	return true
}

// source is the memory of a span that a local step reads.
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

// unposted says whether a local step reads of a later round's post, which is not there.
func (x *execution) unposted(s *step) bool {
	return s.Round > 0 && s.Src.Buf == algo.Posted && x.e.board.Posted(s.Peer, x.number+uint64(s.Round)) == nil
}

// waitsFor is the rank that the operation can't go on without, -1 if there is none: one whose header is missing, else
// one that has to send, else one that has to take.
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

// wants is how much must still come from a rank.
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
