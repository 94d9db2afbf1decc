package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/dig"
	"go.uber.org/fx"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/runtime/ccl"
)

// stopTimeout bounds Stop when its context has no deadline.
const stopTimeout = 15 * time.Second

// Node is one process's Carillon: a runtime, and what makes it visible.
type Node struct {
	app       *fx.App
	runtime   *ccl.Runtime
	telemetry *Telemetry
	ras       *JobRAS // nil: switched off
	health    *health.Server

	termination *termination // nil: signals are the program's
	stop        sync.Once
}

// Start makes and starts a process's Carillon from the defaults and the options, in their order. It does not wait for
// other ranks. The error names every problem of the configuration; nothing is left running then. Stop ends what it
// started.
func Start(ctx context.Context, opts ...Option) (*Node, error) {
	cfg, err := resolve(opts)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	ctx = context.WithoutCancel(ctx) // nothing below waits for anybody
	n, o, set := &Node{}, &opened{}, settings{}
	n.app = fx.New(
		Module, fx.Supply(&cfg, o), fx.NopLogger, fx.StopTimeout(stopTimeout), fx.Populate(&n.runtime, &n.telemetry, &n.ras, &n.health, &set),
	)
	err = n.app.Err()
	if err == nil {
		err = n.app.Start(ctx)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()
		return nil, errors.Join(dig.RootCause(err), o.end(ctx))
	}
	if cfg.Signals {
		n.termination = awaitTermination(n.telemetry, n.ras, set.sink)
	}
	return n, nil
}

// Runtime makes communicators.
func (n *Node) Runtime() *ccl.Runtime { return n.runtime }

// Telemetry is what reads the process's tape.
func (n *Node) Telemetry() *Telemetry { return n.telemetry }

// RAS is the process's part in its job's RAS; nil when it is switched off.
func (n *Node) RAS() *JobRAS { return n.ras }

// HealthURL is where the health endpoint listens, such as "http://127.0.0.1:43211"; empty when it is switched off.
func (n *Node) HealthURL() string {
	if n.health == nil {
		return ""
	}
	return n.health.URL()
}

// Stop ends everything that Start started: the health endpoint, the runtime with its communicators (one that is still
// alive is reported as leaked), and the telemetry, once it has read what the runtime did last and exported it. It is
// bounded by ctx, and by 15 seconds. A collector that is slow or away takes a few of them, and is a warning in the log and
// no error. A second Stop does nothing.
func (n *Node) Stop(ctx context.Context) error {
	n.stop.Do(n.termination.end)
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return n.app.Stop(ctx)
}
