package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/health/gpu"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// GPUs says which GPUs a process watches.
type GPUs string

// The choices.
const (
	OwnGPUs GPUs = ""    // those in CUDA_VISIBLE_DEVICES
	AllGPUs GPUs = "all" // all of the host
	NoGPUs  GPUs = "off" // none: the driver is not even looked for
)

// newGPU makes the watch of the GPUs; nil if it is switched off.
func newGPU(s *settings, t *Telemetry, conditions *health.Conditions, r *JobRAS) (*gpu.Monitor, error) {
	if s.GPU == NoGPUs {
		return nil, nil //nolint:nilnil // a nil Monitor is the watch switched off
	}
	tell, err := gpu.Declare(conditions)
	if err != nil {
		return nil, err
	}
	m := gpu.New(gpu.Config{All: s.GPU == AllGPUs, Logger: s.Log, OnEvent: func(e gpu.Event) {
		tell(e)
		r.gpuEvent(e)
	}})
	if err := t.Registry().Register(m); err != nil {
		return nil, fmt.Errorf("metrics of GPUs: %w", err)
	}
	return m, nil
}

// gpuStopTimeout bounds the end of the watch: a library that hangs must not use up the time for exporting spans.
const gpuStopTimeout = time.Second

func (o *observed) stopGPU(ctx context.Context) {
	if o.gpu == nil {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, gpuStopTimeout)
	defer cancel()
	if err := o.gpu.Stop(bounded); err != nil && ctx.Err() == nil { // else Stop had no time
		o.settings.Log.Warn("the watch of the GPUs did not end", "error", err)
	}
}

// gpuCheck makes a process not ready while one of its GPUs can't be used. Having no GPU at all is well, and reported.
func gpuCheck(m *gpu.Monitor) health.Check {
	return func(ctx context.Context) error {
		var errs []error
		s := m.Read(ctx)
		for _, c := range s.Conditions {
			if c.Severity == bus.Critical {
				errs = append(errs, errors.New(c.Text))
			}
		}
		if len(errs) > 0 {
			return errors.Join(errs...)
		}
		return health.Well(s.Status)
	}
}

// gpuEvent publishes an event of a GPU. If several processes watch the same GPUs, only the first of the host publishes
// it to others; a process with its own GPUs always does.
func (r *JobRAS) gpuEvent(e gpu.Event) {
	if r == nil {
		return
	}
	c := &e.Condition
	ev := bus.Event{
		Type: e.Type, Time: e.Time, Reason: c.Code, Text: c.Text, Description: c.Advice, Data: c, Stage: bus.Opened,
		Severity: c.Severity, Subject: "GPU " + c.GPU, Key: "gpu/" + r.self.Host + "/" + c.Code + "/" + c.GPU,
	}
	ev.Labels = map[string]string{"host": r.self.Host}
	switch {
	case c.Code == gpu.CodeLost:
		ev.Labels[semconv.LabelState] = "lost"
	case e.Type == semconv.EventGPULost:
		ev.Labels[semconv.LabelState] = "unread"
	default:
		ev.Labels[semconv.LabelGPU] = c.GPU
	}
	if c.GPU == "" {
		ev.Subject = "the GPUs of " + r.self.Host
	}
	if c.Xid != 0 {
		ev.Labels[semconv.LabelXid] = strconv.FormatUint(c.Xid, 10)
		ev.Key += "/" + ev.Labels[semconv.LabelXid]
	}
	if r.self.Rank >= 0 {
		ev.Rank = strconv.Itoa(r.self.Rank)
	}
	switch {
	case e.Type == semconv.EventGPURecovered:
		ev.Stage = bus.Closed
	case c.Count > 1:
		ev.Stage = bus.Changed
	}
	_, own := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	r.event(ev, r.settings.World.LocalRank <= 0 || own && r.settings.GPU == OwnGPUs)
}
