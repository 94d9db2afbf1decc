package node

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// publishInterval is how old a snapshot becomes.
const publishInterval = time.Second

// publishing takes the snapshots that the health endpoint answers with.
type publishing struct {
	settings   *settings
	telemetry  *Telemetry
	conditions *health.Conditions
	publisher  *health.Publisher
	ras        *JobRAS // nil: nothing is known beyond this process
	host       string
	pid        int
	cancel     context.CancelFunc // nil: it does not run
	running    sync.WaitGroup
}

func newPublishing(s *settings, t *Telemetry, c *health.Conditions, r *JobRAS) *publishing {
	p := &publishing{settings: s, telemetry: t, conditions: c, publisher: &health.Publisher{}, ras: r}
	p.host, p.pid = t.self.Host, t.self.PID
	p.publisher.Publish(p.take())
	return p
}

func (p *publishing) start() {
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	p.running.Go(func() { p.publisher.Run(ctx, p.conditions, publishInterval, p.take) })
}

func (p *publishing) stop() {
	if p != nil && p.cancel != nil {
		p.cancel()
		p.running.Wait()
	}
}

func (p *publishing) take() *health.Snapshot {
	world := &p.settings.World
	s := &health.Snapshot{
		Time: time.Now(), Job: world.Job, Rank: world.Rank, Size: world.Size, Host: p.host, PID: p.pid,
		Conditions: p.conditions.List(), Ranks: p.ras.Ranks(), Verdicts: p.ras.Verdicts(),
	}
	slots, now := p.telemetry.Slots(), tape.Now()
	s.Comms = make([]health.Comm, len(slots))
	for i := range slots {
		s.Comms[i] = health.CommOf(&slots[i], now)
	}
	if p.ras == nil {
		s.Unwatched = p.settings.unwatched()
		s.Ranks = []health.Rank{{Rank: world.Rank, State: "alive", Host: p.host, PID: s.PID}}
	}
	return s
}
