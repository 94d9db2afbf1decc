package watch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/endpoint"
)

// poller asks one rank after the other.
type poller struct {
	client  *endpoint.Client
	answers chan answer

	mu      sync.Mutex
	targets []endpoint.Target
	asked   map[endpoint.Target]time.Time
	last    time.Time     // that anybody was asked
	more    chan struct{} // a token: there are targets that were never asked
}

// answer is what one was told, or why nothing.
type answer struct {
	from     endpoint.Target
	snapshot *endpoint.Snapshot
	err      error
}

func newPoller(client *endpoint.Client) *poller {
	return &poller{client: client, answers: make(chan answer), asked: map[endpoint.Target]time.Time{}, more: make(chan struct{}, 1)}
}

// reach says whom there is to ask.
func (p *poller) reach(targets []endpoint.Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = targets
	maps.DeleteFunc(p.asked, func(t endpoint.Target, _ time.Time) bool { return !slices.Contains(targets, t) })
	for _, t := range targets {
		if p.asked[t].IsZero() {
			select {
			case p.more <- struct{}{}:
			default:
			}
			return
		}
	}
}

// next is who was asked longest ago, if it is time to ask anybody; who was never asked is asked at once. Otherwise it is
// how long to wait.
func (p *poller) next(now time.Time) (to endpoint.Target, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.targets) == 0 {
		return to, time.Hour // more interrupts it
	}
	to = p.targets[0]
	for _, t := range p.targets {
		if p.asked[t].Before(p.asked[to]) {
			to = t
		}
	}
	if first := p.asked[to]; !first.IsZero() {
		wait = max(pollEach-now.Sub(first), pollAny-now.Sub(p.last))
	}
	if wait <= 0 {
		p.asked[to], p.last = now, now
	}
	return to, wait
}

// again has one asked again that has refused: somebody else on this host had just asked.
func (p *poller) again(to endpoint.Target, after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[to] = p.asked[to].Add(after - pollEach)
}

// run asks until ctx ends.
func (p *poller) run(ctx context.Context) {
	for ctx.Err() == nil {
		to, wait := p.next(time.Now())
		if wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-p.more:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		s, err := p.client.Snapshot(ctx, to)
		select {
		case p.answers <- answer{to, s, err}:
		case <-ctx.Done():
		}
	}
}
