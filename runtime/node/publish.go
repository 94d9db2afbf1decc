package node

import (
	"context"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// publishInterval is the greatest age of a snapshot.
const publishInterval = time.Second

// publish begins to take the snapshots that the health endpoint answers with.
func (n *Node) publish() {
	n.publishing.start(func(ctx context.Context) { n.publisher.Run(ctx, n.conditions, publishInterval, n.snapshot) })
}

func (n *Node) snapshot() *health.Snapshot {
	world := &n.settings.World
	s := &health.Snapshot{
		Time: time.Now(), Job: world.Job, Rank: world.Rank, Size: world.Size,
		Host: n.telemetry.self.Host, PID: n.telemetry.self.PID,
		Conditions: conditionsOf(world.Job, n.conditions), Ranks: n.ras.Ranks(), Verdicts: n.ras.Verdicts(),
	}
	slots, now := n.telemetry.Slots(), tape.Now()
	s.Comms = make([]health.Comm, len(slots))
	for i := range slots {
		s.Comms[i] = health.CommOf(&slots[i], now)
		s.Comms[i].Job = world.Job
	}
	if n.ras == nil { // nothing is known beyond this process
		s.Unwatched = n.settings.unwatched()
		s.Ranks = []health.Rank{{Job: world.Job, Rank: world.Rank, State: "alive", Host: s.Host, PID: s.PID}}
	}
	return s
}

// conditionsOf are the open conditions of a job, as a snapshot has them.
func conditionsOf(job string, open *health.Conditions) []health.Condition {
	all := open.List()
	for i := range all {
		all[i].Job = job
	}
	return all
}
