package ccl

import (
	"context"
	"errors"
	"sync"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Group collects calls and makes them together when it ends: point-to-point calls on one communicator progress side by side, and
// different communicators do not wait for each other. It is a context: a call joins the group that its context is, or is derived from. Then it is checked,
// and otherwise done at the end of the group; its buffers belong to the group until then. Calls that make communicators (InitRank, InitAll, World, Split) begin at once,
// do not wait, and are complete when the group has ended.
//
// Groups nest: an inner group's calls are made when the outermost one ends. A Group belongs to one goroutine at a time.
type Group struct {
	context.Context
	rt    *Runtime
	outer *Group // nil for the outermost
	work  *Work

	mu    sync.Mutex
	order []*Comm
	calls map[*Comm][]host.Op
	made  []*Comm // communicators that are made in this group
	depth int     // unfinished inner groups
	ended bool
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
	g := &Group{Context: ctx, rt: rt, calls: map[*Comm][]host.Op{}, work: newWork()}
	if outer := groupOf(ctx); outer != nil {
		g.outer = outer.outermost()
		g.work = g.outer.work
		g.outer.mu.Lock()
		g.outer.depth++
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

// Group runs fn with a new group, and ends the group. When fn returns an error the calls of the group are not made, and the error is returned.
func (rt *Runtime) Group(ctx context.Context, fn func(g *Group) error) error {
	g := rt.GroupStart(ctx)
	if err := fn(g); err != nil {
		g.drop()
		return err
	}
	return rt.GroupEnd(g)
}

// GroupEnd makes the calls of the group and blocks until they are done; of an inner group, it leaves them to the outermost one. Calls on
// non-blocking communicators go on in the background: then it returns ErrInProgress, and AsyncError and Wait of each tell the rest. The
// error joins those of all communicators concerned.
func (rt *Runtime) GroupEnd(g *Group) error {
	site := lifecycle.Caller(1)
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

// drop ends the group without making its calls.
func (g *Group) drop() {
	if g.close() != nil || g.outer != nil {
		return
	}
	g.work.finish(groupError("the group was given up: its function returned an error"))
}

// add puts a call on the list.
func (g *Group) add(c *Comm, op host.Op) error {
	if err := c.life.Check(op.Call); err != nil && !errors.Is(err, ErrInProgress) {
		return c.refused(g, op.Call, err, 2)
	}
	o := g.outermost()
	o.mu.Lock()
	defer o.mu.Unlock()
	if g.ended || o.ended {
		return c.invalid(g, c.usage(op.Call, "its context is a group that has ended: pass the group of a GroupStart without GroupEnd, or a context that is none"))
	}
	if o.calls[c] == nil {
		o.order = append(o.order, c)
	}
	o.calls[c] = append(o.calls[c], op)
	return nil
}

// await makes the group's end wait for a communicator that is being made.
func (g *Group) await(c *Comm) {
	o := g.outermost()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.made = append(o.made, c)
}

// end makes the calls.
func (g *Group) end(site lifecycle.Site) error {
	ctx := g.Context
	var errs []error
	for _, c := range g.made {
		if c.blocking {
			errs = append(errs, c.Wait(ctx))
		} else {
			errs = append(errs, ErrInProgress)
		}
	}
	if err := joined(errs); err != nil && !errors.Is(err, ErrInProgress) {
		return err
	}
	if len(g.order) == 1 && g.order[0].blocking {
		c := g.order[0]
		return joined(append(errs, c.runGroup(ctx, c.turn.line(), g.calls[c], site)))
	}
	// Places first, then the calls: two groups over the same communicators can't cross.
	places := make([]*ticket, len(g.order))
	for i, c := range g.order {
		places[i] = c.turn.line()
	}
	jobs := make([]*job, len(g.order))
	for i, c := range g.order {
		j, place, calls := newJob(), places[i], g.calls[c]
		jobs[i] = j
		jobCtx := ctx
		if !c.blocking {
			jobCtx = context.WithoutCancel(ctx)
			c.jobs.add(j)
		}
		c.work.Go(func() { j.end(c.runGroup(jobCtx, place, calls, site)) })
	}
	for i, c := range g.order {
		if !c.blocking {
			errs = append(errs, ErrInProgress)
			continue
		}
		<-jobs[i].done // obeys ctx
		errs = append(errs, jobs[i].err)
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

// runGroup makes a group's calls on this communicator: neighbouring point-to-point calls together, collectives one after another. It stops at the first error.
func (c *Comm) runGroup(ctx context.Context, place *ticket, calls []host.Op, site lifecycle.Site) (err error) {
	a := c.begin(ctx, tape.ActGroup, lifecycle.CallGroupEnd, c.groups.Add(1), site)
	a.rec.Ops = uint32(len(calls))
	defer func() { a.end(err) }()
	if err := c.queue(ctx, lifecycle.CallGroupEnd, place); err != nil {
		return err
	}
	defer c.turn.leave()
	for len(calls) > 0 {
		n := 0
		for n < len(calls) && pointToPoint(calls[n].Call) {
			n++
		}
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
