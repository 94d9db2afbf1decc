package mesh

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/time/rate"
)

// Bounds on what askers can cause.
const (
	// askerRate and askerBurst bound how many questions of one member are answered, and allRate and allBurst those of
	// all.
	askerRate, askerBurst = 20, 40
	allRate, allBurst     = 100, 200
	// handlers is how many calls of Handler and LocalNote run at a time, and relays how many questions are worked on.
	handlers, relays = 4, 64
	// answerTTL is how long an answer is given again to members that ask the same.
	answerTTL = 100 * time.Millisecond
	// flushTime is how long answers are gathered before they are passed on.
	flushTime = 20 * time.Millisecond
	// maxAskers and maxIDs bound what is remembered of askers and of questions.
	maxAskers, maxIDs = 4096, 4096
)

// answerer answers questions of others, and passes them on.
type answerer struct {
	m       *Mesh
	handler chan struct{} // room for calls of Handler
	relay   chan struct{} // room for questions

	mu     sync.Mutex
	all    *rate.Limiter
	asker  map[string]*rate.Limiter
	ids    map[questionKey]struct{} // seen, so that a replay does nothing
	order  []questionKey
	folded map[foldKey]*folded
}

// questionKey tells a question apart from its repetitions: a member that has passed on a question may be asked once
// more, directly.
type questionKey struct {
	id     [16]byte
	direct bool
	absent int
}

// foldKey is a question and the member that it is asked of.
type foldKey struct {
	sum  [sha256.Size]byte
	name string
}

// folded is an answer that several wait for.
type folded struct {
	done chan struct{}
	body []byte
	busy bool      // there was no room to call for it
	at   time.Time // when it was there
}

func newAnswerer(m *Mesh) *answerer {
	return &answerer{
		m: m, handler: make(chan struct{}, handlers), relay: make(chan struct{}, relays),
		all: rate.NewLimiter(allRate, allBurst), asker: make(map[string]*rate.Limiter),
		ids: make(map[questionKey]struct{}), folded: make(map[foldKey]*folded),
	}
}

// question takes a question that came. It does not block.
func (a *answerer) question(body []byte) error {
	q, err := decodeQuestion(body)
	if err != nil {
		return err
	}
	a.m.count.questions.Add(1)
	if q.units[0].member != a.m.self.instance() {
		return errMessage
	}
	began := a.m.now()
	switch a.admit(&q, began) {
	case replyNothing:
		return nil
	case replyBusy:
		a.m.count.limited.Add(1)
		return nil
	}
	select {
	case a.relay <- struct{}{}:
	default:
		a.m.count.limited.Add(1)
		return nil
	}
	if !a.m.spawn(func() {
		defer func() { <-a.relay }()
		a.work(&q, began)
	}) {
		<-a.relay
	}
	return nil
}

// admit says whether a question is to be answered: not if it came before, or too many have come.
func (a *answerer) admit(q *question, now time.Time) uint8 {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := questionKey{q.id, q.direct, len(q.units[0].absent)}
	if _, seen := a.ids[key]; seen {
		a.m.count.folded.Add(1)
		return replyNothing
	}
	if len(a.order) >= maxIDs {
		delete(a.ids, a.order[0])
		a.order = a.order[1:]
	}
	a.ids[key] = struct{}{}
	a.order = append(a.order, key)
	if a.asker[q.asker] == nil {
		if len(a.asker) >= maxAskers {
			clear(a.asker)
		}
		a.asker[q.asker] = rate.NewLimiter(askerRate, askerBurst)
	}
	if !a.asker[q.asker].AllowN(now, 1) || !a.all.AllowN(now, 1) {
		return replyBusy
	}
	return replyOK
}

// work answers a question and passes it on, and sends the asker what comes.
func (a *answerer) work(q *question, began time.Time) {
	ctx, cancel := context.WithDeadline(a.m.ctx, began.Add(q.left))
	defer cancel()
	g := newGathering(len(q.units))
	for _, u := range q.units {
		g.want += len(u.absent)
	}
	asker := a.m.asker
	rest := q.units[1:]
	if len(rest) > 0 && asker.listen(q.id, g.add) {
		defer asker.forget(q.id)
		a.pass(ctx, q, rest)
	}
	a.m.spawn(func() {
		a.unit(ctx, q.asker, q.body, &q.units[0], func(r reply) { g.add([]reply{r}) })
	})
	to := memberlist.Address{Addr: q.reply.String(), Name: q.replyTo}
	for {
		replies, more := g.next(ctx)
		for part := range chunks(replies) {
			// The asker may be gone.
			_ = a.m.stream(ctx, to, appendReplies(message(msgAnswers), q.id, part))
		}
		if !more {
			return
		}
	}
}

// pass asks those behind this member, in less time than it has.
func (a *answerer) pass(ctx context.Context, q *question, rest []unit) {
	deadline, _ := ctx.Deadline()
	for _, part := range split(rest) {
		sub := *q
		sub.units, sub.reply, sub.replyTo = part, a.m.self.Addr, a.m.self.Name
		sub.left = deadline.Sub(a.m.now()) * 7 / 8
		a.m.spawn(func() {
			first, cancel := context.WithTimeout(ctx, sub.left/4)
			defer cancel()
			if a.m.put(first, &part[0].member, &sub) == nil {
				return
			}
			// The first is not there: the others of its part are asked one by one.
			for i := 1; i < len(part) && ctx.Err() == nil; i++ {
				one := sub
				one.units = part[i : i+1]
				_ = a.m.put(ctx, &part[i].member, &one) // the first asker asks again
			}
		})
	}
}

// chunks cuts answers into messages of bounded size.
func chunks(replies []reply) func(func([]reply) bool) {
	return func(yield func([]reply) bool) {
		for len(replies) > 0 {
			n, size := 0, 0
			for n < len(replies) && n < maxReplies && (n == 0 || size+len(replies[n].body) <= flushBytes) {
				size += len(replies[n].body)
				n++
			}
			if !yield(replies[:n]) {
				return
			}
			replies = replies[n:]
		}
	}
}

// gathering is where the answers of a part of the tree come together.
type gathering struct {
	mu      sync.Mutex
	replies []reply
	size    int
	want    int
	some    chan struct{} // there are answers
	full    chan struct{} // there are enough to pass on
}

func newGathering(want int) *gathering {
	return &gathering{want: want, some: make(chan struct{}, 1), full: make(chan struct{}, 1)}
}

func (g *gathering) add(replies []reply) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.replies = append(g.replies, replies...)
	g.want -= len(replies)
	for i := range replies {
		g.size += len(replies[i].body)
	}
	signal(g.some)
	if g.want <= 0 || g.size >= flushBytes {
		signal(g.full)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// next waits for answers, and a little for more. more is false when all are there or the time is up.
func (g *gathering) next(ctx context.Context) (replies []reply, more bool) {
	select {
	case <-g.some:
		timer := time.NewTimer(flushTime)
		select {
		case <-g.full:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	replies, g.replies, g.size = g.replies, nil, 0
	return replies, g.want > 0 && ctx.Err() == nil
}

// unit answers for this member and for those of its host that can't, all at once. emit gets each answer, one at a time.
func (a *answerer) unit(ctx context.Context, from string, body []byte, u *unit, emit func(reply)) {
	var answering sync.WaitGroup
	defer answering.Wait()
	var mu sync.Mutex
	give := func(r reply) {
		mu.Lock()
		defer mu.Unlock()
		emit(r)
	}
	self := a.m.self.Name
	for _, t := range u.absent {
		st, ok := a.m.Member(t.name)
		if !ok || st.Member.Instance != t.id || !st.Member.sameHost(&a.m.self) || a.m.config.LocalNote == nil {
			give(reply{from: t.name, by: self, status: replyNothing})
			continue
		}
		answering.Go(func() { // a note does not depend on the question
			give(a.answer(ctx, t.name, nil, func() []byte { return a.m.config.LocalNote(st.Member) }))
		})
	}
	if a.m.config.Handler == nil {
		give(reply{from: self, by: self, status: replyNothing})
		return
	}
	give(a.answer(ctx, self, body, func() []byte { return a.m.config.Handler(ctx, from, body) }))
}

// answer calls f for an answer, unless one that was asked the same of the same is new or under way. It waits for room
// until ctx ends.
func (a *answerer) answer(ctx context.Context, name string, body []byte, f func() []byte) reply {
	r := reply{from: name, by: a.m.self.Name}
	key := foldKey{sha256.Sum256(body), name}
	now := a.m.now()
	a.mu.Lock()
	for k, old := range a.folded {
		if !old.at.IsZero() && now.Sub(old.at) > answerTTL {
			delete(a.folded, k)
		}
	}
	fold := a.folded[key]
	if fold != nil {
		a.mu.Unlock()
		a.m.count.folded.Add(1)
		select {
		case <-fold.done:
		case <-ctx.Done():
			r.status = replyBusy
			return r
		}
		return r.with(fold)
	}
	fold = &folded{done: make(chan struct{})}
	a.folded[key] = fold
	a.mu.Unlock()
	finished := a.m.spawn(func() {
		select {
		case a.handler <- struct{}{}:
			fold.body = slices.Clone(f())
			<-a.handler
		case <-ctx.Done():
			fold.busy = true
		}
		a.mu.Lock()
		fold.at = a.m.now()
		a.mu.Unlock()
		close(fold.done)
	})
	if !finished {
		r.status = replyBusy
		return r
	}
	select {
	case <-fold.done:
		return r.with(fold)
	case <-ctx.Done():
		r.status = replyBusy
		return r
	}
}

// with is the reply with what was answered.
func (r reply) with(f *folded) reply {
	switch {
	case f.busy:
		r.status = replyBusy
	case f.body == nil:
		r.status = replyNothing
	}
	r.body = f.body[:min(len(f.body), MaxAnswer)]
	return r
}

// nodeAt is a node as memberlist's sending wants it.
func nodeAt(to memberlist.Address) (*memberlist.Node, error) {
	addr, err := netip.ParseAddrPort(to.Addr)
	if err != nil {
		return nil, fmt.Errorf("mesh: the address of %s: %w", to.Name, err)
	}
	return &memberlist.Node{Name: to.Name, Addr: addr.Addr().AsSlice(), Port: addr.Port()}, nil
}
