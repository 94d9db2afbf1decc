package node

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/health/gpu"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// observed is a process whose tape is read and shown: this one, or one that an Agent follows. A part that is switched
// off is nil.
type observed struct {
	settings   *settings
	ras        *JobRAS            // of its job
	conditions *health.Conditions // of its job
	telemetry  *Telemetry
	gpu        *gpu.Monitor
	checks     health.Registry
	publisher  health.Publisher
	publishing task
	health     *health.Server
	withdraw   func() error // removes the health endpoint's address file; nil if there is none
}

// publishInterval is the greatest age of a snapshot.
const publishInterval = time.Second

// open makes the parts that read and show the tape of the process self. mounted says that its health endpoint is part
// of another one.
func (o *observed) open(w recorder, self mesh.Member, mounted bool) (err error) {
	if o.telemetry, err = newTelemetry(o.settings, w, self, o.ras); err != nil {
		return err
	}
	if o.gpu, err = newGPU(o.settings, o.telemetry, o.conditions, o.ras); err != nil {
		return err
	}
	o.publisher.Publish(o.snapshot())
	o.health, err = o.newHealth(mounted)
	return err
}

// start begins to read and show. url is where the health endpoint is; empty if it is switched off.
func (o *observed) start(url string) {
	o.telemetry.start()
	if o.gpu != nil {
		o.gpu.Start()
	}
	o.publishing.start(func(ctx context.Context) { o.publisher.Run(ctx, o.conditions, publishInterval, o.snapshot) })
	if url == "" || o.telemetry.tape == nil {
		return
	}
	var err error
	if o.withdraw, err = health.WriteAddress(o.telemetry.tape.Path(), url); err != nil {
		o.settings.Log.Warn("carillon watch and status don't find this process by themselves (--url does)", "error",
			err)
	}
}

// stop ends the parts. Those that read the tape reach its end first.
func (o *observed) stop(ctx context.Context) error {
	var errs []error
	if o.withdraw != nil {
		_ = o.withdraw() // a reader that finds the file later sees that the process has ended
	}
	if o.health != nil {
		errs = append(errs, o.health.Stop(ctx))
	}
	o.publishing.stop()
	o.stopGPU(ctx)
	errs = append(errs, o.telemetry.stop(ctx))
	o.telemetry.unregister()
	return errors.Join(errs...)
}

// snapshot is what is known about the process now.
func (o *observed) snapshot() *health.Snapshot {
	world := &o.settings.World
	s := &health.Snapshot{
		Time: time.Now(), Job: world.Job, Rank: world.Rank, Size: world.Size,
		Host: o.telemetry.self.Host, PID: o.telemetry.self.PID,
		Conditions: conditionsOf(world.Job, o.conditions), Ranks: o.ras.Ranks(), Verdicts: o.ras.Verdicts(),
	}
	slots, now := o.telemetry.Slots(), tape.Now()
	s.Comms = make([]health.Comm, len(slots))
	for i := range slots {
		s.Comms[i] = health.CommOf(&slots[i], now)
		s.Comms[i].Job = world.Job
	}
	if o.ras == nil { // nothing is known beyond this process
		s.Unwatched = o.settings.unwatched()
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
