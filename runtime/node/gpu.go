package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/fx"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/health/gpu"
)

// GPUs says which GPUs a process watches.
type GPUs uint8

// The choices.
const (
	OwnGPUs GPUs = iota // those that CUDA_VISIBLE_DEVICES leaves it
	AllGPUs             // all of the host
	NoGPUs              // none: the driver is not even looked for
)

// String is "on", "all" or "off", as CARILLON_GPU has it.
func (g GPUs) String() string {
	switch g {
	case AllGPUs:
		return "all"
	case NoGPUs:
		return "off"
	default:
		return "on"
	}
}

// parseGPUs reads CARILLON_GPU.
func parseGPUs(text string) (GPUs, error) {
	switch strings.ToLower(text) {
	case "1", "true", "on", "yes":
		return OwnGPUs, nil
	case "0", "false", "off", "no":
		return NoGPUs, nil
	case "all":
		return AllGPUs, nil
	default:
		return OwnGPUs, errors.New("want on (the process's own GPUs), all (of the host), or off")
	}
}

// WithGPUs says which GPUs are watched; see Config.GPU.
func WithGPUs(which GPUs) Option {
	return func(c *Config) error {
		c.GPU = which
		return nil
	}
}

// gpuStopTimeout bounds the end of the watch: a library that hangs must not take the time in which spans are exported.
const gpuStopTimeout = time.Second

// provideGPU makes what watches the GPUs; nil when it is switched off.
func provideGPU(s settings, t *Telemetry, conditions *health.Conditions, r *JobRAS, lc fx.Lifecycle) (*gpu.Monitor, error) {
	if s.GPU == NoGPUs {
		return nil, nil //nolint:nilnil // a nil Monitor is the watch switched off
	}
	tell, err := gpuConditions(conditions)
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
	lc.Append(fx.StartStopHook(m.Start, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, gpuStopTimeout)
		defer cancel()
		if err := m.Stop(ctx); err != nil {
			s.Log.Warn("the watch of the GPUs did not end", "error", err)
		}
	}))
	return m, nil
}

// gpuChecks make a process not ready while one of its GPUs can't be used. No GPU at all is well, and said.
func gpuChecks(m *gpu.Monitor) []Check {
	if m == nil {
		return nil
	}
	return []Check{{Name: "gpu", Kind: health.Ready, Check: func(ctx context.Context) error {
		var errs []error
		s := m.Read(ctx)
		for _, c := range s.Conditions {
			if c.Severity == gpu.Fatal {
				errs = append(errs, errors.New(c.Text))
			}
		}
		if len(errs) > 0 {
			return errors.Join(errs...)
		}
		return health.Well(s.Status)
	}}}
}
