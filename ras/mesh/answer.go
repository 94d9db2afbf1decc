package mesh

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits on the work that questions cause.
const (
	// askerRate and askerBurst bound how many questions of one member are answered, and allRate and allBurst those of
	// all.
	askerRate, askerBurst = 20, 40
	allRate, allBurst     = 100, 200
	// handlers is how many calls of Handler and LocalNote run at a time, relays how many questions are in progress.
	handlers, relays = 4, 64
	// flushTime is how long answers are gathered before they are forwarded.
	flushTime = 20 * time.Millisecond
	// maxAskers bounds the number of askers with a rate limit of their own.
	maxAskers = 4096
)

type asker struct {
	m       *Mesh
	handler chan struct{} // room for calls of Handler and LocalNote

	mu      sync.Mutex
	working int                      // questions in progress
	open    map[string]func([]reply) // takes the answers to each open question, by its id
	all     *rate.Limiter
	each    map[string]*rate.Limiter // by asker
}

func newAsker(m *Mesh) *asker {
	return &asker{
		m: m, handler: make(chan struct{}, handlers), open: make(map[string]func([]reply)),
		all: rate.NewLimiter(allRate, allBurst), each: make(map[string]*rate.Limiter),
	}
}

// listen calls f with the answers to a question, until forget. f must not block.
func (a *asker) listen(id string, f func([]reply)) (first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open[id] != nil {
		return false
	}
	a.open[id] = f
	return true
}

func (a *asker) forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.open, id)
}

func (a *asker) answers(body []byte) error {
	got, err := decodeAnswers(body)
	if err != nil {
		return err
	}
	a.mu.Lock()
	f := a.open[got.ID]
	a.mu.Unlock()
	if f != nil { // else they are late or belong to no question
		f(got.Replies)
	}
	return nil
}

// question handles a received question. It does not block.
func (a *asker) question(body []byte) error {
	q, err := decodeQuestion(body)
	if err != nil {
		return err
	}
	if q.Units[0].Member != a.m.self.instance() {
		return errMessage
	}
	began := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.working == relays || !a.admit(q.Asker, began) {
		a.m.count.Limited.Add(1)
		return nil
	}
	if a.m.spawn(func() {
		a.work(q, began)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.working--
	}) {
		a.working++
	}
	return nil
}

func (a *asker) admit(name string, now time.Time) bool {
	if a.each[name] == nil {
		if len(a.each) >= maxAskers {
			clear(a.each)
		}
		a.each[name] = rate.NewLimiter(askerRate, askerBurst)
	}
	return a.each[name].AllowN(now, 1) && a.all.AllowN(now, 1)
}

// work answers a question, forwards it, and sends the answers back.
func (a *asker) work(q *question, began time.Time) {
	ctx, cancel := context.WithDeadline(a.m.ctx, began.Add(q.Left))
	defer cancel()
	want := 0
	for i := range q.Units {
		want += q.Units[i].size()
	}
	arrived := make(chan []reply, want)
	take := func(replies []reply) {
		select {
		case arrived <- replies:
		default: // more answers than members
		}
	}
	if rest := q.Units[1:]; len(rest) > 0 && a.listen(q.ID, take) {
		defer a.forget(q.ID)
		a.pass(ctx, *q, rest)
	}
	a.m.spawn(func() {
		a.unit(ctx, q, &q.Units[0], func(r reply) { take([]reply{r}) })
	})
	for want > 0 && ctx.Err() == nil {
		replies := gather(ctx, arrived, want)
		want -= len(replies)
		// It fails if the asker is gone.
		_ = a.m.stream(ctx, q.Reply, q.ReplyTo, encode(msgAnswers, answers{q.ID, replies}))
	}
}

// gather waits for an answer, and then for flushTime for more, up to want in all.
func gather(ctx context.Context, arrived <-chan []reply, want int) (replies []reply) {
	var flush <-chan time.Time // from the first answer on
	for size := 0; len(replies) < want && size < flushBytes; {
		select {
		case some := <-arrived:
			replies = append(replies, some...)
			for i := range some {
				size += len(some[i].Body)
			}
			if flush == nil {
				flush = time.After(flushTime)
			}
		case <-flush:
			return replies
		case <-ctx.Done():
			return replies
		}
	}
	return replies
}

// pass asks members through a tree: the first of each part asks the rest of the part. If it can't be reached, the rest
// are asked one by one.
func (a *asker) pass(ctx context.Context, q question, units []unit) {
	for _, part := range split(units) {
		a.m.spawn(func() {
			if a.put(ctx, q, part) != nil {
				a.directly(ctx, q, part[1:])
			}
		})
	}
}

// directly asks each unit, a few at a time. A unit that can't be reached gives no answer.
func (a *asker) directly(ctx context.Context, q question, units []unit) {
	var asking sync.WaitGroup
	room := make(chan struct{}, askAtOnce)
	for i := range units {
		if room <- struct{}{}; ctx.Err() != nil {
			break
		}
		asking.Go(func() {
			_ = a.put(ctx, q, units[i:i+1])
			<-room
		})
	}
	asking.Wait()
}

// put sends the question to the first of the units, which answers it and forwards it to the others. It gets less time
// than is left here.
func (a *asker) put(ctx context.Context, q question, units []unit) error {
	deadline, _ := ctx.Deadline()
	q.Left = time.Until(deadline) * 7 / 8
	q.Units, q.Reply, q.ReplyTo = units, a.m.self.Addr, a.m.self.Name
	ctx, cancel := context.WithTimeout(ctx, q.Left/4)
	defer cancel()
	to := &units[0].Member
	st, ok := a.m.Member(to.Name)
	if !ok || st.Member.Instance != to.ID {
		return fmt.Errorf("mesh: %s is not a member", to.Name)
	}
	return a.m.stream(ctx, st.Member.Addr, to.Name, encode(msgQuestion, q))
}

// unit answers for this member and, concurrently, for the members of its host that can't. emit gets each answer;
// several goroutines may call it.
func (a *asker) unit(ctx context.Context, q *question, u *unit, emit func(reply)) {
	var answering sync.WaitGroup
	defer answering.Wait()
	for _, t := range u.Absent {
		answering.Go(func() {
			emit(a.answer(ctx, t.Name, func() []byte {
				st, ok := a.m.Member(t.Name)
				if !ok || st.Member.Instance != t.ID || !st.Member.sameHost(&a.m.self) {
					return nil
				}
				return a.m.config.LocalNote(st.Member)
			}))
		})
	}
	emit(a.answer(ctx, a.m.self.Name, func() []byte { return a.m.config.Handler(ctx, q.Asker, q.Body) }))
}

// answer returns f's answer. It waits for room until ctx ends.
func (a *asker) answer(ctx context.Context, of string, f func() []byte) reply {
	r := reply{From: of, By: a.m.self.Name, Status: replyBusy}
	body, err := await(ctx, a.m, func() ([]byte, error) {
		select {
		case a.handler <- struct{}{}:
			defer func() { <-a.handler }()
			return f(), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
	switch {
	case err != nil:
	case body == nil:
		r.Status = replyNothing
	default:
		r.Status, r.Body = replyOK, slices.Clone(body[:min(len(body), MaxAnswer)])
	}
	return r
}
