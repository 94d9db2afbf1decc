package node

import (
	"context"
	"os"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// publishInterval is how old a snapshot becomes.
const publishInterval = time.Second

// JobView is what is known of the job beyond this process. Its methods are called from one goroutine, and don't wait.
type JobView interface {
	Ranks() []health.Rank
	Verdicts() []health.Verdict
}

// publishing takes the snapshots that the health endpoint answers with, as long as there is an endpoint.
type publishing struct {
	settings   *settings
	telemetry  *Telemetry
	conditions *health.Conditions
	publisher  *health.Publisher
	view       JobView // nil: nothing is known beyond this process
	host       string
	end        func() // nil: it does not run
}

// newPublishing makes it; without a view, RAS is the view.
func newPublishing(s *settings, t *Telemetry, c *health.Conditions, r *JobRAS, view JobView) *publishing {
	if view == nil && r != nil {
		view = r
	}
	host, _ := os.Hostname() // left out if there is none
	p := &publishing{settings: s, telemetry: t, conditions: c, publisher: &health.Publisher{}, view: view, host: host}
	if s.Health != "" {
		p.publisher.Publish(p.take())
	}
	return p
}

func (p *publishing) start() {
	if p.settings.Health == "" {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.publisher.Run(ctx, p.conditions, publishInterval, p.take)
	}()
	p.end = func() {
		cancel()
		<-done
	}
}

func (p *publishing) stop() {
	if p != nil && p.end != nil {
		p.end()
	}
}

func (p *publishing) take() *health.Snapshot {
	world := &p.settings.World
	s := &health.Snapshot{
		Time: time.Now(), Job: world.Job, Rank: world.Rank, Size: world.Size, Host: p.host, PID: os.Getpid(),
		Conditions: p.conditions.List(),
	}
	slots, now := p.telemetry.Slots(), tape.Now()
	s.Comms = make([]health.Comm, len(slots))
	for i := range slots {
		s.Comms[i] = health.CommOf(&slots[i], now)
	}
	if p.view != nil {
		s.Ranks, s.Verdicts = p.view.Ranks(), p.view.Verdicts()
	} else {
		s.Unwatched = p.settings.unwatched()
		s.Ranks = []health.Rank{{Rank: world.Rank, State: "alive", Host: p.host, PID: s.PID}}
	}
	return s
}
