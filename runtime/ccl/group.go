package ccl

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Group collects calls and makes them together when it ends: point-to-point calls on one communicator progress
// concurrently, and different communicators do not wait for each other. A Group is a context: a call joins the group
// that its context is, or is derived from. The call is then only checked, and made at the end of the group; the group
// owns its buffers until then. Calls that make communicators (InitRank, InitAll, World, Split) begin at once, do not
// wait, and are complete when the group has ended. Calls that end communicators can't be made in a group.
//
// Groups nest: an inner group's calls are made when the outermost group ends. A Group may be used by one goroutine at a
// time. A group that becomes unreachable without GroupEnd is reported, and its calls are not made. GroupStart makes a
// Group: calls in a zero Group are refused.
type Group struct {
	context.Context // an inner group's context refers to the outer group, and keeps it alive
	*batch
}

// batch is a group without its handle.
type batch struct {
	*nest
	rt      *Runtime
	within  *batch // the enclosing group; nil for the outermost
	site    lifecycle.Site
	ended   bool
	endedBy lifecycle.Site
}

// nest is the state that nested groups share. Its mutex guards all of them.
type nest struct {
	outermost *batch
	work      *Work

	mu       sync.Mutex
	open     []*batch // groups that have not ended, in the order of their starts
	calls    []groupCall
	made     []made
	expected []made // jobs of non-blocking parents

	// A group that stays open is recorded on the tape, because none of its calls has been made. The first call sets
	// late. told has the acts that record it, one for each communicator that the group has calls on.
	since int64 // when the group got its first call
	late  *time.Timer
	told  []*act
	on    []*core // cores whose openGroups contain this nest
}

// openTime is how long a group may be open before it is recorded.
const openTime = time.Second

// openGroups holds the groups with calls on a communicator that have not ended.
type openGroups struct {
	mu    sync.Mutex
	nests []*nest
}

func (g *openGroups) add(n *nest) (isNew bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if isNew = !slices.Contains(g.nests, n); isNew {
		g.nests = append(g.nests, n)
	}
	return isNew
}

func (g *openGroups) remove(n *nest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nests = slices.DeleteFunc(g.nests, func(o *nest) bool { return o == n })
}

// tell records the groups now, as the communicator has failed: their unmade calls may be the reason.
func (g *openGroups) tell() {
	g.mu.Lock()
	open := slices.Clone(g.nests)
	g.mu.Unlock()
	for _, n := range open {
		n.outermost.tell()
	}
}

// groupCall is a call on a communicator, to be made when the group ends.
type groupCall struct {
	c  *Comm
	op engine.Op
	in *batch // the group that the call joined
}

// made is a communicator that is made while the group is being filled.
type made struct {
	c   *Comm // the job's communicator: the new one, or the parent of a Split that makes none here
	job *Work
}

type groupKey struct{}

func (g *Group) absent() bool { return g == nil || g.batch == nil }

// Value makes the group available to calls that have it as their context.
func (g *Group) Value(key any) any {
	switch {
	case key == (groupKey{}) && g == nil:
		return &Group{} // the call refuses it; a nil result would mean no group
	case key == (groupKey{}):
		return g
	case g == nil || g.Context == nil:
		return nil
	default:
		return g.Context.Value(key)
	}
}

func groupOf(ctx context.Context) *Group {
	g, _ := ctx.Value(groupKey{}).(*Group)
	return g
}

// GroupStart begins a group; if ctx is a group, an inner one. GroupEnd must follow.
func (rt *Runtime) GroupStart(ctx context.Context) *Group {
	outer := groupOf(ctx)
	if rt.absent() || outer != nil && outer.absent() {
		return &Group{Context: ctx} // GroupEnd and every call in it report that
	}
	g := &Group{Context: ctx, batch: &batch{rt: rt, site: callSite()}}
	if outer == nil {
		g.nest = &nest{outermost: g.batch, work: newWork(), open: []*batch{g.batch}}
		runtime.AddCleanup(g, func(b *batch) { b.rt.reap(b.forgotten) }, g.batch)
		return g
	}
	g.within, g.nest = outer.batch, outer.nest
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = append(g.open, g.batch)
	return g
}

// forgotten reports an outermost group that became unreachable without GroupEnd.
func (b *batch) forgotten() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	b.end(lifecycle.Site{}, lifecycle.CodeInvalidUsage)
	b.work.finish(groupError("the group was never ended: its calls were not made"))
	order, calls := b.sorted()
	for _, c := range order {
		c.tape.Life(tape.LifeRecord{
			Act: tape.ActGroup, Call: lifecycle.CallGroupStart, Stage: tape.StageMisuse,
			Code: lifecycle.CodeInvalidUsage, State: c.life.State(), Peer: -1, Site: b.site, Shared: c.shared.Load(),
			Text: fmt.Sprintf("the group that was started by %s was never ended: its calls on %s, %d of them, "+
				"were not made; call GroupEnd, or use Runtime.Group", b.site, c, len(calls[c])),
		})
	}
	if !b.rt.cfg.TapeIsLogged || len(order) == 0 {
		b.rt.cfg.Log.Warn("group was never ended: its calls were not made; call GroupEnd, or use Runtime.Group",
			"started_by", b.site.String(), "calls", len(b.calls))
	}
}

// Group runs fn with a new group, and ends the group. If fn returns an error, panics, or leaves an inner group open,
// the calls of the group are not made, and the error is returned.
func (rt *Runtime) Group(ctx context.Context, fn func(g *Group) error) error {
	if rt.absent() {
		return errNoRuntime(lifecycle.CallGroupStart)
	}
	g := rt.GroupStart(ctx)
	defer g.drop()
	if err := fn(g); err != nil {
		return err
	}
	return rt.GroupEnd(g)
}

// GroupEnd makes the calls of the group and blocks until they are done. For an inner group, it leaves the calls to the
// outermost group. Calls on non-blocking communicators continue in the background: GroupEnd then returns ErrInProgress,
// and the rest is reported by AsyncError and Wait of each communicator. The error is a *GroupError that says for each
// communicator which calls took effect.
func (rt *Runtime) GroupEnd(g *Group) error {
	if rt.absent() {
		return errNoRuntime(lifecycle.CallGroupEnd)
	}
	if g.absent() {
		return groupError("the group is nil or zero: GroupEnd needs the group that GroupStart returned")
	}
	if g.rt != rt {
		return groupError("the group was started on another runtime: end it there")
	}
	site := callSite()
	if err := g.close(site); err != nil {
		return g.refused(err)
	}
	if g.within != nil {
		return nil
	}
	err := g.finish(site)
	g.work.finish(err)
	return err
}

// GroupError says how far a failed group has got.
type GroupError struct {
	Results []GroupResult // results of all its communicators, in the order of their first calls
}

// GroupResult is the result of a group's calls on one communicator. The calls are made in order, up to the first error.
type GroupResult struct {
	Comm  string // name, id, rank and size
	Calls int    // number of calls in the group
	Done  int    // number of calls that took effect
	Err   error  // nil, ErrInProgress, or the error of the next call
}

// Error lists the communicators, each with the number of calls that took effect.
func (e *GroupError) Error() string {
	parts := make([]string, len(e.Results))
	for i, r := range e.Results {
		parts[i] = fmt.Sprintf("on %s, %d of %d calls took effect", r.Comm, r.Done, r.Calls)
		if errors.Is(r.Err, ErrInProgress) {
			parts[i] = fmt.Sprintf("on %s, %d calls are in progress", r.Comm, r.Calls)
		} else if r.Err != nil {
			parts[i] += ", and then: " + r.Err.Error()
		}
	}
	return "the group failed: " + strings.Join(parts, "; ")
}

// Unwrap returns the errors of the communicators.
func (e *GroupError) Unwrap() []error {
	var errs []error
	for _, r := range e.Results {
		if r.Err != nil && !errors.Is(r.Err, ErrInProgress) {
			errs = append(errs, r.Err)
		}
	}
	return errs
}

// summary returns the error of a whole group.
func summary(results []GroupResult) error {
	e := &GroupError{Results: results}
	switch {
	case len(e.Unwrap()) > 0:
		return e
	case slices.ContainsFunc(results, func(r GroupResult) bool { return r.Err != nil }):
		return ErrInProgress
	}
	return nil
}

func groupError(detail string) *UsageError {
	return &UsageError{Call: lifecycle.CallGroupEnd, Code: lifecycle.CodeInvalidUsage, Rank: -1, Detail: detail}
}

// close marks the group as ended by the call at site.
func (g *Group) close(site lifecycle.Site) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		err := groupError("the group has ended already: there must be one GroupEnd for each GroupStart")
		err.First = g.endedBy
		return err
	}
	for _, inner := range slices.Backward(g.open) {
		if inner != g.batch && inner.inside(g.batch) {
			return groupError(fmt.Sprintf(
				"the inner group that was started by %s has not ended: end inner groups first", inner.site))
		}
	}
	g.end(site, lifecycle.CodeOK)
	return nil
}

// tell records that the group is open on each communicator that it has calls on, and checks for more communicators
// later.
func (b *batch) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	order, _ := b.sorted()
	for _, c := range order {
		if c.life.State().Gone() || slices.ContainsFunc(b.told, func(a *act) bool { return a.c == c.core }) {
			continue
		}
		c.numbering.Lock()
		number := c.ownGroup()
		c.numbering.Unlock()
		a := c.act(context.Background(), lifecycle.CallGroupStart, number, b.site)
		a.rec.Start = b.since // its number of calls is known when it ends
		c.tape.Life(a.rec)
		b.told = append(b.told, a)
	}
	b.late.Reset(openTime)
}

// untell ends the records that tell began, on communicators that the group has no calls on, or on all.
func (n *nest) untell(all bool, code lifecycle.Code) {
	ops := map[*core]uint32{}
	for _, call := range n.calls {
		ops[call.c.core]++
	}
	n.told = slices.DeleteFunc(n.told, func(a *act) bool {
		if !all && ops[a.c] > 0 {
			return false
		}
		a.rec.Stage, a.rec.State, a.rec.Code, a.rec.Ops = tape.StageEnd, a.c.life.State(), code, ops[a.c]
		a.c.tape.Life(a.rec)
		return true
	})
}

// end marks the group, and its inner groups, as ended. The caller holds the mutex.
func (b *batch) end(by lifecycle.Site, code lifecycle.Code) {
	if b.within == nil && b.late != nil {
		b.late.Stop()
		b.untell(true, code)
		for _, c := range b.on {
			c.openGroups.remove(b.nest)
		}
	}
	b.open = slices.DeleteFunc(b.open, func(inner *batch) bool {
		if !inner.inside(b) {
			return false
		}
		inner.ended, inner.endedBy = true, by
		return true
	})
}

// refused records a GroupEnd that was not allowed, on the communicators of the group, and returns its error.
func (g *Group) refused(err error) error {
	g.mu.Lock()
	comms, _ := g.sorted()
	for _, m := range g.made {
		comms = append(comms, m.c)
	}
	g.mu.Unlock()
	for _, c := range comms {
		_ = c.refused(g.Context, lifecycle.CallGroupEnd, err)
	}
	return err
}

// drop ends the group, and inner groups that were left open, without making their calls. It does nothing if the group
// has ended.
func (g *Group) drop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	g.end(g.site, lifecycle.CodeAbandoned)
	if g.within == nil {
		g.work.finish(groupError(
			"the group was given up: its function returned an error or panicked, or left an inner group open"))
	}
	g.calls = slices.DeleteFunc(g.calls, func(call groupCall) bool { return call.in.inside(g.batch) })
	g.untell(false, lifecycle.CodeAbandoned)
}

func (b *batch) inside(other *batch) bool {
	for ; b != nil; b = b.within {
		if b == other {
			return true
		}
	}
	return false
}

// closedTo returns why calls of rt can't join the group; empty if they can, or if there is no group.
func (g *Group) closedTo(rt *Runtime) string {
	switch {
	case g == nil:
		return ""
	case g.absent():
		return "its context is a group that GroupStart did not make: it is nil or zero, or was started on a nil runtime"
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.rt != rt || g.outermost.rt != rt:
		return "its context is a group of another runtime: use a group of the runtime that the communicator belongs to"
	case g.ended:
		return "its context is a group that has ended: " +
			"pass the group of a GroupStart without GroupEnd, or a context that is none"
	default:
		return ""
	}
}

func (g *Group) add(c *Comm, ops []engine.Op) error {
	if why := g.closedTo(c.rt); why != "" {
		return c.refused(g, ops[0].Call, c.usage(ops[0].Call, lifecycle.CodeInvalidUsage, "%s", why))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.late == nil {
		g.since, g.late = tape.Now(), time.AfterFunc(openTime, g.outermost.tell)
	}
	if c.openGroups.add(g.nest) {
		g.on = append(g.on, c.core)
	}
	for _, op := range ops {
		g.calls = append(g.calls, groupCall{c, op, g.batch})
	}
	return nil
}

// sorted returns the calls by communicator, and the communicators in the order of their first calls.
func (n *nest) sorted() (order []*Comm, calls map[*Comm][]engine.Op) {
	calls = map[*Comm][]engine.Op{}
	for _, call := range n.calls {
		if calls[call.c] == nil {
			order = append(order, call.c)
		}
		calls[call.c] = append(calls[call.c], call.op)
	}
	return order, calls
}

// await makes the group's end wait for a call that makes a communicator.
func (n *nest) await(c *Comm, j *Work) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.made = append(n.made, made{c, j})
}

// expect makes the parent of a new communicator in progress, from the group's end until j has ended.
func (n *nest) expect(parent *Comm, j *Work) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expected = append(n.expected, made{parent, j})
}
