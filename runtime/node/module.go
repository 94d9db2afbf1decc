package node

import (
	"go.uber.org/fx"

	"github.com/carillon-rt/carillon/health"
)

// The value groups to which a program adds its own.
const (
	// ObserverGroup has the Observers of the tape.
	ObserverGroup = `group:"carillon.observers"`
	// CheckGroup has the Checks of the health endpoint.
	CheckGroup = `group:"carillon.checks"`
	// RouteGroup has what the health endpoint shows beside its own: health.Routes.
	RouteGroup = `group:"carillon.routes"`
)

// Module is a process's Carillon for an fx program: it provides *Node and its parts (*ccl.Runtime, *Telemetry, *JobRAS,
// *health.Server, *health.Conditions, *health.Publisher, *gpu.Monitor, *tape.Writer), made from a *Config that the
// program supplies (fx.Supply), or else from the environment. They start and stop with the program. What is off is nil.
//
//	fx.New(node.Module, fx.Invoke(func(rt *ccl.Runtime) { … }))
//
// Observers and checks are added with
// fx.Annotate(newMine, fx.As(new(node.Observer)), fx.ResultTags(node.ObserverGroup)).
var Module = fx.Module("carillon",
	fx.Provide(
		fx.Annotate(settleProgram, fx.ParamTags(`optional:"true"`)),
		func() *health.Conditions { return &health.Conditions{} },
		newTape,
		newRAS,
		fx.Annotate(newTelemetry, fx.ParamTags(``, ``, ``, ObserverGroup)),
		newGPU,
		newPublishing,
		func(p *publishing) *health.Publisher { return p.publisher },
		fx.Annotate(newHealth, fx.ParamTags(``, ``, ``, ``, ``, ``, CheckGroup, RouteGroup)),
		newRuntime,
		newNode,
	),
	fx.Invoke(func(n *Node, lc fx.Lifecycle) { lc.Append(fx.StartStopHook(n.start, n.Stop)) }),
)
