package watch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/endpoint"
)

// askAtOnce is how many endpoints are asked at a time: more than there are others, so that those that were given are
// asked although all of the others are out of reach.
const askAtOnce = 2 * maxOthers

// poller asks the ranks in turn, each with a time of its own to answer: one out of reach holds up no other.
type poller struct {
	client  *endpoint.Client
	answers chan answer

	mu      sync.Mutex
	targets []endpoint.Target
	asked   map[endpoint.Target]time.Time
	busy    map[endpoint.Target]bool // that have not answered yet
	last    time.Time                // that anybody was asked
	more    chan struct{}            // a token: there are targets that were never asked, or there is room to ask
}

// answer is what one was told, or why nothing.
type answer struct {
	from     endpoint.Target
	snapshot *endpoint.Snapshot
	err      error
}

func newPoller(client *endpoint.Client) *poller {
	return &poller{
		client: client, answers: make(chan answer), asked: map[endpoint.Target]time.Time{}, busy: map[endpoint.Target]bool{},
		more: make(chan struct{}, 1),
	}
}

// reach says which targets there are to ask.
func (p *poller) reach(targets []endpoint.Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = targets
	maps.DeleteFunc(p.asked, func(t endpoint.Target, _ time.Time) bool { return !slices.Contains(targets, t) })
	for _, t := range targets {
		if p.asked[t].IsZero() {
			p.wake()
			return
		}
	}
}

func (p *poller) wake() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// next is the target that was asked longest ago, and has answered, if it is time to ask; a new one is asked at once.
// Otherwise it is how long to wait. The caller tells done of its end.
func (p *poller) next(now time.Time) (to endpoint.Target, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := slices.DeleteFunc(slices.Clone(p.targets), func(t endpoint.Target) bool { return p.busy[t] })
	if len(free) == 0 || len(p.busy) >= askAtOnce {
		return to, time.Hour // more interrupts it
	}
	to = free[0]
	for _, t := range free {
		if p.asked[t].Before(p.asked[to]) {
			to = t
		}
	}
	if first := p.asked[to]; !first.IsZero() {
		wait = max(pollEach-now.Sub(first), min(pollAny, pollAll/time.Duration(len(p.targets)))-now.Sub(p.last))
	}
	if wait <= 0 {
		p.asked[to], p.last, p.busy[to] = now, now, true
	}
	return to, wait
}

// done says that one has answered, or hasn't within its time.
func (p *poller) done(with endpoint.Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.busy, with)
	p.wake()
}

// again has one asked again that has refused: somebody else on this host had just asked.
func (p *poller) again(to endpoint.Target, after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[to] = p.asked[to].Add(after - pollEach)
}

// run asks until ctx ends, and waits for what it has asked.
func (p *poller) run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
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
		asking.Go(func() {
			s, err := p.client.Snapshot(ctx, to)
			p.done(to)
			select {
			case p.answers <- answer{to, s, err}:
			case <-ctx.Done():
			}
		})
	}
}
