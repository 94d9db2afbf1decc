package ccl

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Group collects calls and makes them together when it ends: point-to-point calls on one communicator progress side by
// side, and different communicators do not wait for each other. It is a context: a call joins the group that its
// context is, or is derived from. Then it is checked, and otherwise done at the end of the group; its buffers belong to
// the group until then. Calls that make communicators (InitRank, InitAll, World, Split) begin at once, do not wait, and
// are complete when the group has ended.
//
// Groups nest: an inner group's calls are made when the outermost one ends. A Group belongs to one goroutine at a time.
type Group struct {
	context.Context
	rt    *Runtime
	outer *Group // nil for the outermost
	work  *Work

	first int // of an inner group: how many calls the outermost one had when it began

	mu    sync.Mutex
	calls []groupCall
	made  []making
	depth int // unfinished inner groups
	ended bool
}

// groupCall is a call on a communicator, to be made when the group ends.
type groupCall struct {
	c  *Comm
	op host.Op
}

// making is a call that makes a communicator; it goes on while the group is being filled.
type making struct {
	c   *Comm // whose job it is: the new one, or the parent of a Split that makes none here
	job *job
}

type groupKey struct{}

// Value makes a group known to the calls that have it as their context.
func (g *Group) Value(key any) any {
	if key == (groupKey{}) {
		return g
	}
	return g.Context.Value(key)
}

func groupOf(ctx context.Context) *Group {
	g, _ := ctx.Value(groupKey{}).(*Group)
	return g
}

// GroupStart begins a group; with a group as ctx, an inner one. GroupEnd must follow.
func (rt *Runtime) GroupStart(ctx context.Context) *Group {
	g := &Group{Context: ctx, rt: rt, work: newWork()}
	if outer := groupOf(ctx); outer != nil {
		g.outer = outer.outermost()
		g.work = g.outer.work
		g.outer.mu.Lock()
		g.outer.depth++
		g.first = len(g.outer.calls)
		g.outer.mu.Unlock()
	}
	return g
}

func (g *Group) outermost() *Group {
	if g.outer != nil {
		return g.outer
	}
	return g
}

// Group runs fn with a new group, and ends the group. When fn returns an error the calls of the group are not made, and
// the error is returned.
func (rt *Runtime) Group(ctx context.Context, fn func(g *Group) error) error {
	g := rt.GroupStart(ctx)
	if err := fn(g); err != nil {
		g.drop()
		return err
	}
	return rt.GroupEnd(g)
}

// GroupEnd makes the calls of the group and blocks until they are done; of an inner group, it leaves them to the
// outermost one. Calls on non-blocking communicators go on in the background: then it returns ErrInProgress, and
// AsyncError and Wait of each tell the rest. The error joins those of all communicators concerned.
func (rt *Runtime) GroupEnd(g *Group) error {
	site := caller()
	if g == nil {
		return groupError("the group is nil: GroupEnd needs the group that GroupStart returned")
	}
	if err := g.close(); err != nil {
		return err
	}
	if g.outer != nil {
		return nil
	}
	err := g.end(site)
	g.work.finish(err)
	return err
}

func groupError(detail string) error {
	return &UsageError{Call: lifecycle.CallGroupEnd, Code: lifecycle.CodeInvalidUsage, Rank: -1, Detail: detail}
}

// close marks the group as ended.
func (g *Group) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ended:
		return groupError("the group has ended already: there must be one GroupEnd for each GroupStart")
	case g.depth > 0:
		return groupError("an inner group has not ended: end inner groups first")
	}
	g.ended = true
	if g.outer != nil {
		g.outer.mu.Lock()
		g.outer.depth--
		g.outer.mu.Unlock()
	}
	return nil
}

// drop ends the group, and inner ones that were left open, without making their calls.
func (g *Group) drop() {
	if g.outer == nil {
		g.mu.Lock()
		ended := g.ended
		g.ended = true
		g.mu.Unlock()
		if !ended {
			g.work.finish(groupError("the group was given up: its function returned an error"))
		}
		return
	}
	if g.close() == nil {
		g.outer.mu.Lock()
		defer g.outer.mu.Unlock()
		g.outer.calls = slices.Delete(g.outer.calls, g.first, len(g.outer.calls))
	}
}

// add puts a call on the list.
func (g *Group) add(c *Comm, op host.Op) error {
	if err := c.life.Check(op.Call); err != nil {
		return c.refused(g, op.Call, err)
	}
	o := g.outermost()
	o.mu.Lock()
	defer o.mu.Unlock()
	if g.ended || o.ended {
		return c.invalid(g, c.usage(op.Call,
			"its context is a group that has ended: pass the group of a GroupStart without GroupEnd, or a context that is none"))
	}
	o.calls = append(o.calls, groupCall{c, op})
	return nil
}

// await makes the group's end wait for a call that makes a communicator.
func (g *Group) await(c *Comm, j *job) {
	o := g.outermost()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.made = append(o.made, making{c, j})
}

// sorted are the calls by communicator, in the order in which the communicators came first.
func (g *Group) sorted() (order []*Comm, calls map[*Comm][]host.Op) {
	calls = map[*Comm][]host.Op{}
	for _, call := range g.calls {
		if calls[call.c] == nil {
			order = append(order, call.c)
		}
		calls[call.c] = append(calls[call.c], call.op)
	}
	return order, calls
}

// end makes the calls.
func (g *Group) end(site lifecycle.Site) error {
	ctx := g.Context
	var errs []error
	for _, m := range g.made {
		if !m.c.blocking {
			errs = append(errs, ErrInProgress)
			continue
		}
		<-m.job.done // obeys ctx
		m.c.jobs.complete(m.job)
		errs = append(errs, m.job.err)
	}
	if err := joined(errs); err != nil && !errors.Is(err, ErrInProgress) {
		return err
	}
	order, calls := g.sorted()
	// Places first, then the calls: two groups over the same communicators can't cross.
	parts := make([]*groupPart, len(order))
	for i, c := range order {
		p := &groupPart{c: c, calls: calls[c], site: site, job: newJob()}
		p.place, p.number = c.line(&c.groups)
		parts[i] = p
	}
	for _, p := range parts {
		switch {
		case !p.c.blocking:
			p.c.jobs.add(p.job)
			p.c.crew.start(func() { p.run(context.WithoutCancel(ctx)) })
		case len(parts) == 1:
			p.run(ctx)
		default:
			p.c.crew.start(func() { p.run(ctx) })
		}
	}
	for _, p := range parts {
		if !p.c.blocking {
			errs = append(errs, ErrInProgress)
			continue
		}
		<-p.job.done // obeys ctx
		errs = append(errs, p.job.err)
	}
	return joined(errs)
}

// joined joins errors; ErrInProgress only counts when there is no other.
func joined(errs []error) error {
	var failures []error
	progress := false
	for _, err := range errs {
		switch {
		case err == nil:
		case errors.Is(err, ErrInProgress):
			progress = true
		default:
			failures = append(failures, err)
		}
	}
	if len(failures) == 0 && progress {
		return ErrInProgress
	}
	return errors.Join(failures...)
}

// groupPart is what a group does on one communicator.
type groupPart struct {
	c      *Comm
	calls  []host.Op
	place  *ticket
	number uint64 // among the communicator's groups
	site   lifecycle.Site
	job    *job
}

func (p *groupPart) run(ctx context.Context) {
	a := p.c.begin(ctx, tape.ActGroup, lifecycle.CallGroupEnd, p.number, p.site)
	a.rec.Ops = uint32(len(p.calls))
	err := p.c.runGroup(ctx, p.place, p.calls)
	a.end(err)
	p.job.end(err)
}

// runGroup makes a group's calls on this communicator: neighbouring point-to-point calls together, collectives one
// after another. It stops at the first error.
func (c *Comm) runGroup(ctx context.Context, place *ticket, calls []host.Op) error {
	if err := c.queue(ctx, lifecycle.CallGroupEnd, place); err != nil {
		return err
	}
	defer c.turn.leave()
	for len(calls) > 0 {
		n := 0
		for n < len(calls) && pointToPoint(calls[n].Call) {
			n++
		}
		var err error
		if n > 0 {
			err = c.executePairs(ctx, lifecycle.CallGroupEnd, calls[:n])
		} else {
			n = 1
			err = c.execute(ctx, &calls[0])
		}
		if err != nil {
			return err
		}
		calls = calls[n:]
	}
	return nil
}

func pointToPoint(call lifecycle.Call) bool {
	return call == lifecycle.CallSend || call == lifecycle.CallRecv
}
