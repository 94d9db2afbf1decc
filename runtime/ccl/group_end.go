package ccl

import (
	"context"
	"errors"
	"fmt"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// finish makes the group's calls, unless a communicator could not be made.
func (g *Group) finish(site lifecycle.Site) error {
	for _, e := range g.expected {
		e.c.jobs.add(e.job)
	}
	results := g.finishMaking()
	err := summary(results)
	if err == nil || errors.Is(err, ErrInProgress) {
		return summary(append(results, g.makeCalls(site)...))
	}
	return summary(append(results, g.skip(site, err)...))
}

func (g *Group) finishMaking() []GroupResult {
	results := make([]GroupResult, 0, len(g.made))
	for _, m := range g.made {
		r := GroupResult{Comm: m.c.String(), Calls: 1, Err: ErrInProgress}
		if m.c.blocking {
			<-m.job.done // obeys the group's context
			m.c.jobs.complete(m.job)
			if r.Err = m.job.err; r.Err == nil {
				r.Comm, r.Done = m.c.String(), 1
			}
		}
		results = append(results, r)
	}
	return results
}

// part enters this communicator's part in a group, of calls on it, and records its start. All parts of the group have
// the same start.
func (g *Group) part(c *Comm, calls []engine.Op, start int64, site lifecycle.Site) *part {
	number, place := c.enterGroup(calls)
	a := c.act(g.Context, lifecycle.CallGroupEnd, number, site)
	a.rec.Start, a.rec.Ops = start, uint32(len(calls))
	return &part{c: c, calls: calls, act: a.start(), place: place, job: newWork()}
}

// skip records on the other communicators that their calls are not made, because of cause. Their parts still count as a
// group, as on ranks that could make their calls.
func (g *Group) skip(site lifecycle.Site, cause error) []GroupResult {
	order, calls := g.sorted()
	start := tape.Now()
	results := make([]GroupResult, len(order))
	for i, c := range order {
		results[i] = GroupResult{Comm: c.String(), Calls: len(calls[c])}
		p := g.part(c, calls[c], start, site)
		c.turn.cancel(p.place)
		p.act.conclude(lifecycle.CodeOf(cause), -1, fmt.Sprintf(
			"0 of %d calls took effect, because the group could not make another communicator: %s",
			len(calls[c]), cause))
	}
	return results
}

func (g *Group) makeCalls(site lifecycle.Site) []GroupResult {
	order, calls := g.sorted()
	start := tape.Now()
	// First take all places, then make the calls: so two groups over the same communicators can't deadlock.
	parts := make([]*part, len(order))
	for i, c := range order {
		parts[i] = g.part(c, calls[c], start, site)
		if !c.blocking {
			c.jobs.add(parts[i].job)
		}
	}
	for i, p := range parts {
		if p.c.blocking && i == len(parts)-1 {
			p.run(g.Context) // run the last part here: the others have begun
		} else {
			p.c.workers.start(func() { p.run(g.Context) })
		}
	}
	results := make([]GroupResult, len(parts))
	for i, p := range parts {
		results[i] = GroupResult{Comm: p.c.String(), Calls: len(p.calls), Err: ErrInProgress}
		if p.c.blocking {
			<-p.job.done // obeys ctx
			results[i].Done, results[i].Err = p.done, p.job.err
		}
	}
	return results
}

// part is a group's calls on one communicator.
type part struct {
	c     *Comm
	calls []engine.Op
	act   *act
	place *ticket
	job   *Work
	done  int // calls that took effect; written before the job ends
}

// run makes the calls: neighboring point-to-point calls on the same kind of memory together, collectives one after
// another. It stops at the first error.
func (p *part) run(ctx context.Context) {
	c := p.c
	if !c.blocking {
		ctx = context.WithoutCancel(ctx)
	}
	queued := c.queue(ctx, lifecycle.CallGroupEnd, p.place)
	err := queued
	if queued == nil {
		c.group = c.profile.StartGroup()
		err = p.make(ctx)
		c.profile.Stop(c.group, lifecycle.CodeOf(err))
		c.group = 0
	}
	var outcome error
	if err != nil {
		outcome = &GroupError{Results: []GroupResult{{Comm: c.String(), Calls: len(p.calls), Done: p.done, Err: err}}}
	}
	p.act.end(outcome) // while holding the turn, so that it doesn't follow the end of a Destroy on the tape
	if queued == nil {
		c.turn.leave()
	}
	if !c.blocking && len(p.calls) > 1 {
		err = outcome
	}
	p.job.finish(err)
}

func (p *part) make(ctx context.Context) error {
	for p.done < len(p.calls) {
		rest, n := p.calls[p.done:], 0
		for n < len(rest) && !rest[n].Call.IsCollective() && (rest[n].Stream == nil) == (rest[0].Stream == nil) {
			n++
		}
		call := lifecycle.CallGroupEnd
		if n == 0 {
			n, call = 1, rest[0].Call
		}
		if err := p.c.execute(ctx, call, rest[:n]); err != nil {
			return err
		}
		p.done += n
	}
	return nil
}
