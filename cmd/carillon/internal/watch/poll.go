package watch

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/endpoint"
)

// askAtOnce is how many endpoints are asked at a time: more than there are others, which may all be out of reach.
const askAtOnce = 2 * maxOthers

// poller says when it is whose turn to be asked. One out of reach holds up no other.
type poller struct {
	targets []endpoint.Target
	asked   map[endpoint.Target]time.Time
	busy    map[endpoint.Target]bool // that have not answered yet
	last    time.Time                // that anybody was asked
}

func newPoller() *poller {
	return &poller{asked: map[endpoint.Target]time.Time{}, busy: map[endpoint.Target]bool{}}
}

func (p *poller) reach(targets []endpoint.Target) {
	p.targets = targets
	maps.DeleteFunc(p.asked, func(t endpoint.Target, _ time.Time) bool { return !slices.Contains(targets, t) })
}

// next is the target that was asked longest ago, and has answered, or how long to wait; a new one is asked at once.
func (p *poller) next(now time.Time) (to endpoint.Target, wait time.Duration) {
	free := slices.DeleteFunc(slices.Clone(p.targets), func(t endpoint.Target) bool { return p.busy[t] })
	if len(free) == 0 || len(p.busy) >= askAtOnce {
		return to, time.Hour // until one has answered
	}
	to = slices.MinFunc(free, func(a, b endpoint.Target) int { return p.asked[a].Compare(p.asked[b]) })
	if first := p.asked[to]; !first.IsZero() {
		wait = min(pollAny, pollAll/time.Duration(len(p.targets))) - now.Sub(p.last)
	}
	if wait <= 0 {
		p.asked[to], p.last, p.busy[to] = now, now, true
	}
	return to, wait
}

func (p *poller) done(with endpoint.Target) { delete(p.busy, with) }

type answer struct {
	from     endpoint.Target
	snapshot *endpoint.Snapshot
	err      error
}

// ask asks all whose turn it is, each with a time of its own to answer, and says how long to wait for the next one's.
func (w *Watcher) ask(ctx context.Context, now time.Time) time.Duration {
	for {
		to, wait := w.poller.next(now)
		if wait > 0 {
			return wait
		}
		w.running.Go(func() {
			s, err := w.cfg.Client.Snapshot(ctx, to)
			select {
			case w.answers <- answer{to, s, err}:
			case <-ctx.Done():
			}
		})
	}
}
