package node

import (
	"context"
	"os"
	"time"

	"go.uber.org/fx"

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

// snapshots takes the snapshots that the health endpoint answers with.
type snapshots struct {
	settings   settings
	telemetry  *Telemetry
	conditions *health.Conditions
	publisher  *health.Publisher
	view       JobView // nil: nothing is known beyond this process
	unwatched  string  // why there is no view
	host       string
	cancel     context.CancelFunc
	done       chan struct{}
}

func newConditions() *health.Conditions { return &health.Conditions{} }

// providePublisher makes the Publisher, and what publishes there while there is an endpoint to ask for it.
func providePublisher(s settings, t *Telemetry, c *health.Conditions, r *JobRAS, lc fx.Lifecycle, view JobView) *health.Publisher {
	if view == nil && r != nil {
		view = r
	}
	host, _ := os.Hostname() // left out if there is none
	p := &snapshots{settings: s, telemetry: t, conditions: c, publisher: &health.Publisher{}, view: view, host: host}
	if view == nil {
		p.unwatched = s.unwatched()
	}
	if s.Health == "" {
		return p.publisher
	}
	p.publish()
	lc.Append(fx.StartStopHook(p.start, p.stop))
	return p.publisher
}

func (p *snapshots) start() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel, p.done = cancel, make(chan struct{})
	go p.run(ctx)
}

func (p *snapshots) stop() {
	p.cancel()
	<-p.done
}

// run publishes at each interval, and at once when a condition changes, but not more often than ten times in one.
func (p *snapshots) run(ctx context.Context) {
	defer close(p.done)
	ticker := time.NewTicker(publishInterval)
	defer ticker.Stop()
	changed := p.conditions.Changed()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-changed:
			select {
			case <-ctx.Done():
				return
			case <-time.After(publishInterval / 10):
			}
		}
		changed = p.conditions.Changed() // before they are read, so that none is missed
		p.publish()
	}
}

func (p *snapshots) publish() {
	world := &p.settings.World
	s := &health.Snapshot{
		Time: time.Now(), Job: world.Job, Rank: world.Rank, Size: world.Size, Host: p.host, PID: os.Getpid(), Conditions: p.conditions.List(),
	}
	slots, now := p.telemetry.Slots(), tape.Now()
	s.Comms = make([]health.Comm, len(slots))
	for i := range slots {
		s.Comms[i] = health.CommOf(&slots[i], now)
	}
	if p.view != nil {
		s.Ranks, s.Verdicts = p.view.Ranks(), p.view.Verdicts()
	} else {
		s.Unwatched = p.unwatched
		s.Ranks = []health.Rank{{Rank: world.Rank, State: "alive", Host: p.host, PID: s.PID}}
	}
	p.publisher.Publish(s)
}

// unwatched says why a process takes no part in RAS; see provideRAS.
func (s *settings) unwatched() string {
	if s.RAS.Off {
		return "RAS is off (CARILLON_RAS)"
	}
	return "there is no tape (CARILLON_TAPE)"
}

// minPollInterval is the setting in health.Config's terms.
func (s *settings) minPollInterval() time.Duration {
	if s.MinPollInterval == 0 {
		return -1
	}
	return s.MinPollInterval
}
