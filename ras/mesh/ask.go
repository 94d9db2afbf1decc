package mesh

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// ErrQuestionTooLong means that a question has more than MaxQuestion bytes.
var ErrQuestionTooLong = errors.New("mesh: the question is too long")

// askAtOnce is how many members are asked directly at a time.
const askAtOnce = 16

// asker asks and answers.
type asker struct {
	m *Mesh
	*answerer

	mu   sync.Mutex
	open map[[16]byte]func([]reply) // what to do with the answers to each open question
}

func newAsker(m *Mesh) *asker {
	return &asker{m: m, answerer: newAnswerer(m), open: make(map[[16]byte]func([]reply))}
}

func (a *asker) listen(id [16]byte, f func([]reply)) (first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open[id] != nil {
		return false
	}
	a.open[id] = f
	return true
}

func (a *asker) forget(id [16]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.open, id)
}

// answers takes answers that came.
func (a *asker) answers(body []byte) error {
	id, replies, err := decodeReplies(body)
	if err != nil {
		return err
	}
	a.mu.Lock()
	f := a.open[id]
	a.mu.Unlock()
	if f != nil { // else they are late, or no question's
		f(replies)
	}
	return nil
}

// Ask asks the named members a question; with no names, all that have not left, this one among them. It returns at
// once; the Inquiry yields the answers. It takes as long as ctx says, or DefaultAskTime, and a minute at most.
//
// Members that are dead, stopped or out of reach are not asked: another one of their host is, for the last they wrote.
// That is also done, in the last quarter of the time, for those that did not answer.
func (m *Mesh) Ask(ctx context.Context, question []byte, to ...string) (*Inquiry, error) {
	if len(question) > MaxQuestion {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrQuestionTooLong, len(question), MaxQuestion)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = m.now().Add(DefaultAskTime)
	}
	if longest := m.now().Add(maxAskTime); deadline.After(longest) {
		deadline = longest
	}
	q := &Inquiry{over: make(chan struct{}), pending: make(map[string]string)}
	all := len(to) == 0
	m.mu.Lock()
	if all {
		for name, e := range m.table.entries {
			if e.State != Left {
				to = append(to, name)
			}
		}
	}
	units, missing := m.table.units(to)
	m.mu.Unlock()
	q.never = missing
	for _, name := range to {
		if missing[name] == "" {
			q.pending[name] = whySilent
		}
	}
	q.answers = make(chan Answer, len(q.pending))
	q.ctx, q.cancel = context.WithDeadline(ctx, deadline)
	r := &round{m: m, q: q, body: slices.Clone(question), done: make(chan struct{})}
	_, _ = rand.Read(r.id[:]) // it never fails
	if !m.spawn(func() { r.run(units, deadline) }) {
		q.cancel()
		return nil, ErrClosed
	}
	return q, nil
}

// units sorts members that are to be asked into units, and says why others can't be. Members of one host stand
// together.
func (t *table) units(names []string) (units []unit, missing map[string]string) {
	missing = make(map[string]string)
	asked := make(map[string]bool, len(names))
	var able, unable []*Member
	for _, name := range names {
		e := t.entries[name]
		switch {
		case e == nil:
			missing[name] = whyUnknown
		case asked[name]:
		case e.State.running():
			able = append(able, &e.Member)
		default:
			unable = append(unable, &e.Member)
		}
		asked[name] = true
	}
	slices.SortFunc(able, byHostAndRank)
	slices.SortFunc(unable, byHostAndRank)
	at := make(map[string]int, len(able))
	for i, m := range able {
		at[m.Name] = i
		units = append(units, unit{member: m.instance()})
	}
	for _, m := range unable {
		by := t.proxy(m, "")
		if by == nil {
			missing[m.Name] = whyAlone
			continue
		}
		i, ok := at[by.Name]
		if !ok { // it isn't asked itself
			i = len(units)
			at[by.Name] = i
			units = append(units, unit{member: by.instance()})
		}
		units[i].absent = append(units[i].absent, m.instance())
	}
	return units, missing
}

// proxy is the member that can answer for m: the next one on its host that runs, and is not called not.
func (t *table) proxy(m *Member, not string) *Member {
	there := t.host(m.hostKey(), State.running)
	var first *Member
	for _, p := range there {
		if p.Name == m.Name || p.Name == not {
			continue
		}
		if byHostAndRank(p, m) > 0 {
			return p
		}
		if first == nil {
			first = p
		}
	}
	return first
}

// round is one inquiry from the side of the asker.
type round struct {
	m    *Mesh
	q    *Inquiry
	id   [16]byte
	body []byte
	done chan struct{} // closed when no answer is missing
	once sync.Once
}

// run asks through the tree, then directly, then the neighbours.
func (r *round) run(units []unit, deadline time.Time) {
	defer close(r.q.over)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer r.q.cancel()
	if len(units) == 0 {
		return
	}
	a := r.m.asker
	a.listen(r.id, r.take)
	defer a.forget(r.id)
	total := deadline.Sub(r.m.now())
	others := make([]unit, 0, len(units))
	for i := range units {
		if units[i].member.name != r.m.self.Name {
			others = append(others, units[i])
			continue
		}
		asking.Go(func() {
			a.unit(r.q.ctx, r.m.self.Name, r.body, &units[i], func(answer reply) { r.take([]reply{answer}) })
		})
	}
	for _, part := range split(others) {
		asking.Go(func() {
			if r.put(part, total*7/8, false) != nil {
				r.each(part, deadline) // none is there to pass it on
			}
		})
	}
	if r.wait(deadline.Add(-total / 2)) {
		return
	}
	r.each(r.unanswered(units), deadline)
	if r.wait(deadline.Add(-total / 4)) {
		return
	}
	r.each(r.neighbours(units), deadline)
	r.wait(deadline)
	if r.m.ctx.Err() != nil {
		for i := range units {
			r.q.because(units[i].member.name, whyClosed)
		}
	}
}

func (r *round) question(units []unit, left time.Duration, direct bool) *question {
	return &question{
		id: r.id, asker: r.m.self.Name, reply: r.m.self.Addr, replyTo: r.m.self.Name, left: left, direct: direct,
		units: units, body: r.body,
	}
}

// put sends a part of the tree its question, within a quarter of the time.
func (r *round) put(part []unit, left time.Duration, direct bool) error {
	ctx, cancel := context.WithTimeout(r.q.ctx, left/4)
	defer cancel()
	return r.m.put(ctx, &part[0].member, r.question(part, left, direct))
}

// take takes answers, and ends the wait when none is missing.
func (r *round) take(replies []reply) {
	for _, a := range replies {
		if r.q.take(a) == 0 {
			r.once.Do(func() { close(r.done) })
		}
	}
}

// wait waits for the last answer, until a time. It reports whether the inquiry is over.
func (r *round) wait(until time.Time) bool {
	timer := time.NewTimer(until.Sub(r.m.now()))
	defer timer.Stop()
	select {
	case <-r.done:
		return true
	case <-r.q.ctx.Done():
		return true
	case <-r.m.ctx.Done():
		return true
	case <-timer.C:
		return false
	}
}

// each asks every unit directly, a few at a time.
func (r *round) each(units []unit, deadline time.Time) {
	var asking sync.WaitGroup
	room := make(chan struct{}, askAtOnce)
	for i := range units {
		if r.q.ctx.Err() != nil { // the select would choose by chance if there is room, too
			break
		}
		select {
		case room <- struct{}{}:
		case <-r.q.ctx.Done():
			continue
		}
		asking.Go(func() {
			// A member that can't be reached is missing: it did not answer.
			_ = r.put(units[i:i+1], deadline.Sub(r.m.now())*7/8, true)
			<-room
		})
	}
	asking.Wait()
}

// unanswered are the units in which a member has not answered, without this one.
func (r *round) unanswered(units []unit) (left []unit) {
	for i := range units {
		u := &units[i]
		if u.member.name == r.m.self.Name {
			continue
		}
		waits := r.q.waits(u.member.name)
		for _, a := range u.absent {
			waits = waits || r.q.waits(a.name)
		}
		if waits {
			left = append(left, *u)
		}
	}
	return left
}

// neighbours are units in which others of their hosts answer for those that have not answered.
func (r *round) neighbours(units []unit) (left []unit) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	byProxy := make(map[string]int)
	add := func(t instance, not string) {
		e := r.m.table.entries[t.name]
		if e == nil || !r.q.waits(t.name) {
			return
		}
		by := r.m.table.proxy(&e.Member, not)
		if by == nil || by.Name == r.m.self.Name {
			return
		}
		i, ok := byProxy[by.Name]
		if !ok {
			i = len(left)
			byProxy[by.Name] = i
			left = append(left, unit{member: by.instance()})
		}
		left[i].absent = append(left[i].absent, t)
	}
	for i := range units {
		add(units[i].member, "")
		for _, a := range units[i].absent {
			add(a, units[i].member.name)
		}
	}
	return left
}

// put sends a question to a member.
func (m *Mesh) put(ctx context.Context, to *instance, q *question) error {
	st, ok := m.Member(to.name)
	if !ok || st.Member.Instance != to.id {
		return fmt.Errorf("mesh: %s is not a member", to.name)
	}
	return m.stream(ctx, memberlist.Address{Addr: st.Member.Addr.String(), Name: to.name},
		appendQuestion(message(msgQuestion), q))
}

// stream sends a message on a stream, and returns when it is sent or ctx ends.
func (m *Mesh) stream(ctx context.Context, to memberlist.Address, b []byte) error {
	done := make(chan error, 1)
	node, err := nodeAt(to)
	if err != nil {
		return err
	}
	if !m.spawn(func() { done <- m.list.SendReliable(node, b) }) {
		return ErrClosed
	}
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("mesh: send to %s: %w", to.Name, err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
