package mesh

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// maxAskTime limits an Ask.
	maxAskTime = time.Minute
	// askAtOnce is how many members are asked directly at a time.
	askAtOnce = 16
	// fanOut is how many members one member asks through the tree.
	fanOut = 16
)

// Answer is one member's answer.
type Answer struct {
	// From is the member that the answer is about, and By the member that gave it: another one of the same host if From
	// can't answer.
	From, By string
	// Body is what Handler, or LocalNote, returned there. The receiver owns it.
	Body []byte
}

// Ask asks the named members a question; without names, all members that have not left, including this one. The
// question is sent when a loop ranges over the sequence, which can be done once and yields at most one answer for each
// member. The loop ends when all have answered, when this mesh is closed, or at ctx's deadline, after a minute at most.
//
// For members that are dead, stopped or out of reach, another member of their host is asked, which answers from their
// tapes. In the last quarter of the time, this is also done for members that have not answered.
func (m *Mesh) Ask(ctx context.Context, body []byte, to ...string) (iter.Seq[Answer], error) {
	if len(body) > MaxQuestion {
		return nil, fmt.Errorf("mesh: the question has %d bytes, want at most %d", len(body), MaxQuestion)
	}
	if m.ctx.Err() != nil {
		return nil, ErrClosed
	}
	r := round{m: m, done: make(chan struct{})}
	r.q = question{ID: rand.Text(), Asker: m.self.Name, Body: slices.Clone(body)}
	return func(yield func(Answer) bool) {
		var cancel context.CancelFunc
		r.ctx, cancel = context.WithTimeout(ctx, maxAskTime)
		defer cancel()
		m.mu.Lock()
		if len(to) == 0 {
			for name, e := range m.table.entries {
				if e.State != Left {
					to = append(to, name)
				}
			}
		}
		var all []unit
		all, r.pending = m.table.units(to)
		m.mu.Unlock()
		r.answers = make(chan Answer, len(r.pending))
		if len(r.pending) == 0 || !m.spawn(func() { r.run(all, cancel) }) {
			return
		}
		for a := range r.answers {
			if !yield(a) {
				return
			}
		}
	}, nil
}

// unit is one member to ask, and the members of its host that can't answer and for which it answers.
type unit struct {
	Member instance
	Absent []instance `json:",omitempty"`
}

func (u *unit) size() int { return 1 + len(u.Absent) }

// split cuts units into at most fanOut parts of nearly the same length. The first unit of each part is asked, and asks
// the rest.
func split(units []unit) [][]unit {
	n := min(len(units), fanOut)
	parts := make([][]unit, 0, n)
	for i := range n {
		parts = append(parts, units[len(units)*i/n:len(units)*(i+1)/n])
	}
	return parts
}

// with adds absent, a member for which by answers.
func with(units []unit, by *Member, absent instance) []unit {
	i := slices.IndexFunc(units, func(u unit) bool { return u.Member.Name == by.Name })
	if i < 0 {
		i = len(units)
		units = append(units, unit{Member: by.instance()})
	}
	units[i].Absent = append(units[i].Absent, absent)
	return units
}

// units groups the members to ask, by host. pending are the members that can answer or have a proxy.
func (t *table) units(names []string) (all []unit, pending map[string]bool) {
	pending = make(map[string]bool, len(names))
	var able, unable []*Member
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		switch e := t.entries[name]; {
		case e == nil:
		case e.State.running():
			able = append(able, &e.Member)
		default:
			unable = append(unable, &e.Member)
		}
	}
	slices.SortFunc(able, byHostAndRank)
	slices.SortFunc(unable, byHostAndRank)
	for _, m := range able {
		all = append(all, unit{Member: m.instance()})
		pending[m.Name] = true
	}
	for _, m := range unable {
		if by := t.proxy(m, ""); by != nil {
			all = with(all, by, m.instance())
			pending[m.Name] = true
		}
	}
	return all, pending
}

// proxy is the member that can answer for m: the next running one on its host, other than the one named not.
func (t *table) proxy(m *Member, not string) *Member {
	var first *Member
	for _, p := range t.host(m.hostKey(), State.running) {
		switch {
		case p.Name == m.Name || p.Name == not:
		case byHostAndRank(p, m) > 0:
			return p
		case first == nil:
			first = p
		}
	}
	return first
}

type round struct {
	m       *Mesh
	ctx     context.Context //nolint:containedctx // of the loop; the round lives as long
	q       question
	answers chan Answer   // has room for all; closed at the end of the round
	done    chan struct{} // closed when all have answered

	mu      sync.Mutex
	pending map[string]bool // names of members that have not answered
}

// run asks through the tree, then directly, then through neighbours.
func (r *round) run(units []unit, cancel context.CancelFunc) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		clear(r.pending)
		close(r.answers)
	}()
	var own sync.WaitGroup
	defer own.Wait()
	defer cancel()
	a := r.m.asker
	a.listen(r.q.ID, r.take)
	defer a.forget(r.q.ID)
	others := slices.Clone(units)
	if i := slices.IndexFunc(units, func(u unit) bool { return u.Member.Name == r.m.self.Name }); i >= 0 {
		others = slices.Delete(others, i, i+1)
		own.Go(func() { a.unit(r.ctx, &r.q, &units[i], func(answer reply) { r.take([]reply{answer}) }) })
	}
	deadline, _ := r.ctx.Deadline()
	total := time.Until(deadline)
	a.pass(r.ctx, r.q, others)
	if r.wait(deadline.Add(-total / 2)) {
		return
	}
	a.directly(r.ctx, r.q, slices.DeleteFunc(slices.Clone(others), func(u unit) bool {
		return !r.waits(u.Member) && !slices.ContainsFunc(u.Absent, r.waits)
	}))
	if r.wait(deadline.Add(-total / 4)) {
		return
	}
	a.directly(r.ctx, r.q, r.neighbours(units))
	r.wait(deadline)
}

// take takes the first answer from each member, and ends the wait when all have answered. A busy member may be asked
// again.
func (r *round) take(replies []reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range replies {
		if !r.pending[a.From] || a.Status == replyBusy {
			continue
		}
		delete(r.pending, a.From)
		if a.Status == replyOK {
			r.answers <- Answer{From: a.From, By: a.By, Body: a.Body}
		}
		if len(r.pending) == 0 {
			close(r.done)
		}
	}
}

func (r *round) waits(of instance) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending[of.Name]
}

// wait waits until a time for the last answer. It reports whether there is nothing more to wait for.
func (r *round) wait(until time.Time) bool {
	select {
	case <-r.done:
	case <-r.ctx.Done():
	case <-r.m.ctx.Done():
	case <-time.After(time.Until(until)):
		return false
	}
	return true
}

// neighbours returns units in which the members that have not answered are answered for by others of their hosts.
func (r *round) neighbours(asked []unit) (left []unit) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	for _, u := range asked {
		for _, t := range append([]instance{u.Member}, u.Absent...) {
			e := r.m.table.entries[t.Name]
			if e == nil || !r.waits(t) {
				continue
			}
			if by := r.m.table.proxy(&e.Member, u.Member.Name); by != nil && by.Name != r.m.self.Name {
				left = with(left, by, t)
			}
		}
	}
	return left
}

// stream sends a message on a stream, and returns when it is sent or ctx ends.
func (m *Mesh) stream(ctx context.Context, to netip.AddrPort, name string, b []byte) error {
	node := &memberlist.Node{Name: name, Addr: to.Addr().AsSlice(), Port: to.Port()}
	_, err := await(ctx, m, func() (none struct{}, err error) { return none, m.list.SendReliable(node, b) })
	if err != nil {
		return fmt.Errorf("mesh: send to %s: %w", name, err)
	}
	return nil
}
