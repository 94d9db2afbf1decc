package node

import (
	"errors"
	"log/slog"
	"reflect"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.uber.org/fx"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Module is a process's Carillon for an fx program. It starts and stops with the program.
//
//	fx.New(node.Module, fx.Invoke(func(rt *ccl.Runtime) { … }))
//
// It provides *Node and its parts: *ccl.Runtime, engine/cuda's *GPU (WithGPU), *Telemetry, *JobRAS, *tape.Writer, and
// of the health endpoint *health.Server, *health.Registry and *health.Conditions. What is off is nil.
//
// It is configured as Start is: by the Config that the program supplies (fx.Supply, by value or as a pointer), or else
// from the environment; then by a *slog.Logger, a prometheus.Registerer and a *resource.Resource, if the program
// provides them, as by WithLog, WithRegisterer and WithResource; then by the options of Provide.
var Module = fx.Module("carillon",
	fx.Provide(
		newProgramNode,
		(*Node).Runtime, (*Node).GPU, (*Node).Telemetry, (*Node).RAS, (*Node).Checks, (*Node).Conditions,
		func(n *Node) (*health.Server, *tape.Writer) { return n.health, n.tape },
	),
	fx.Invoke(func(n *Node, lc fx.Lifecycle) { lc.Append(fx.StartStopHook(n.start, n.Stop)) }),
)

// Provide adds options to those of Module. A constructor takes what it needs from the program's graph and returns an
// Option, or an Option and an error:
//
//	node.Provide(func(tracing *Tracing) node.Option { return node.WithSpanProcessor(tracing.Processor) })
//
// fx gives options no order: no two should set the same field. Whatever an option needs must not itself need the
// runtime; a check of something that does is registered with the *health.Registry that Module provides.
func Provide(constructors ...any) fx.Option {
	annotated := make([]any, len(constructors))
	for i, c := range constructors {
		annotated[i] = fx.Annotate(c, fx.ResultTags(`group:"carillon.options"`))
	}
	return fx.Provide(annotated...)
}

// program is what an fx program provides for its Carillon.
type program struct {
	fx.In

	Config     Config                `optional:"true"`
	Pointer    *Config               `optional:"true"`
	Log        *slog.Logger          `optional:"true"`
	Registerer prometheus.Registerer `optional:"true"`
	Resource   *resource.Resource    `optional:"true"`
	Options    []Option              `group:"carillon.options"`
}

// newProgramNode makes the Node of an fx program.
func newProgramNode(p program) (*Node, error) {
	opts := []Option{FromEnv()}
	switch byValue := !reflect.ValueOf(p.Config).IsZero(); {
	case byValue && p.Pointer != nil:
		return nil, errors.New("the program supplies a node.Config and a *node.Config; want one of them")
	case byValue:
		opts[0] = WithConfig(p.Config)
	case p.Pointer != nil:
		opts[0] = WithConfig(*p.Pointer)
	}
	opts = append(opts, set(func(c *Config) {
		if c.Log == nil {
			c.Log = p.Log
		}
		if c.Registerer == nil {
			c.Registerer = p.Registerer
		}
		if c.Resource == nil {
			c.Resource = p.Resource
		}
	}))
	return newNode(nil, append(opts, p.Options...)...)
}
