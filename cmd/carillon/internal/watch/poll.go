package watch

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/endpoint"
	"github.com/carillon-rt/carillon/health"
)

// askAtOnce bounds the requests in flight. It exceeds maxOthers, so that this host's processes are asked even if all
// the others are out of reach.
const askAtOnce = 2 * maxOthers

// poller schedules the requests to the targets. A target that is out of reach delays no other.
type poller struct {
	targets []endpoint.Target
	asked   map[endpoint.Target]time.Time
	busy    map[endpoint.Target]bool // asked, without an answer yet
	last    time.Time                // the time of the last request
	event   time.Time                // the first event since last; zero: none
}

func newPoller() *poller {
	return &poller{asked: map[endpoint.Target]time.Time{}, busy: map[endpoint.Target]bool{}}
}

func (p *poller) reach(targets []endpoint.Target) {
	p.targets = targets
	maps.DeleteFunc(p.asked, func(t endpoint.Target, _ time.Time) bool { return !slices.Contains(targets, t) })
}

// next returns the target that was asked longest ago, if it is due; else how long to wait until it is. A new target is
// due at once.
func (p *poller) next(now time.Time) (to endpoint.Target, wait time.Duration) {
	free := slices.DeleteFunc(slices.Clone(p.targets), func(t endpoint.Target) bool { return p.busy[t] })
	if len(free) == 0 || len(p.busy) >= askAtOnce {
		return to, time.Hour // until one has answered
	}
	to = slices.MinFunc(free, func(a, b endpoint.Target) int { return p.asked[a].Compare(p.asked[b]) })
	if first := p.asked[to]; !first.IsZero() {
		wait = min(pollAny, pollAll/time.Duration(len(p.targets))) - now.Sub(p.last)
		if !p.event.IsZero() {
			wait = min(wait, pollEvent-now.Sub(p.event))
		}
	}
	if wait <= 0 {
		p.asked[to], p.last, p.busy[to], p.event = now, now, true, time.Time{}
	}
	return to, wait
}

// heard records an event. Snapshots show its effects a moment later.
func (p *poller) heard(now time.Time) {
	if p.event.IsZero() {
		p.event = now
	}
}

func (p *poller) done(with endpoint.Target) { delete(p.busy, with) }

type answer struct {
	from     endpoint.Target
	snapshot *health.Snapshot
	err      error
}

// ask asks the targets that are due, each with its own timeout, and returns how long to wait for the next one.
func (w *watcher) ask(ctx context.Context, now time.Time) time.Duration {
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
