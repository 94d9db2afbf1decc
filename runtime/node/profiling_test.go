package node_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/runtime/profiler"
)

// operations is a plug-in that counts collectives, and panics at number panicAt, if that is not 0.
type operations struct {
	name    string
	panicAt int64
	n       atomic.Int64
}

func (o *operations) Name() string                                  { return o.name }
func (o *operations) Mask() profiler.Mask                           { return profiler.Collective }
func (o *operations) Init(profiler.Info) (profiler.Recorder, error) { return o, nil }
func (o *operations) State(profiler.Handle, *profiler.Change)       {}
func (o *operations) Stop(profiler.Handle, *profiler.End)           {}
func (o *operations) Finalize()                                     {}
func (o *operations) Start(e *profiler.Event) profiler.Handle {
	if e.Type == profiler.Collective && o.n.Add(1) == o.panicAt {
		panic("broken")
	}
	return nil
}

// A program's plug-ins get events. A plug-in that panics is in the log, in the metrics and in the conditions, and the
// program goes on.
func TestProfilers(t *testing.T) {
	good, bad := &operations{name: "good"}, &operations{name: "bad", panicAt: 2}
	cfg := node.Default()
	cfg.TapeDir, cfg.Log = t.TempDir(), slog.New(slog.DiscardHandler)
	var n *node.Node
	app := fxtest.New(t, node.Module, fx.Supply(&cfg), fx.NopLogger,
		node.Provide(
			func() node.Option { return node.WithProfiler(good) },
			func() node.Option { return node.WithProfiler(bad) },
		),
		fx.Populate(&n),
		fx.Invoke(func(rt *ccl.Runtime, lc fx.Lifecycle) {
			lc.Append(fx.StartHook(func(ctx context.Context) error {
				comm, err := rt.World(ctx)
				for range 3 {
					err = errors.Join(err, ccl.Barrier(ctx, comm))
				}
				return errors.Join(err, comm.Close())
			}))
		}),
	)
	app.RequireStart()
	changed := n.Conditions().Changed()
	if len(n.Conditions().List()) == 0 {
		<-changed
	}
	if c := n.Conditions().List()[0]; c.String() != "profiler_plugin_off (bad): it panicked: broken" {
		t.Errorf("the condition is %q", c)
	}
	_, metrics := get(t, strings.TrimSuffix(n.HealthURL(), "/")+"/metrics")
	for _, want := range []string{`{plugin="bad"} 1`, `{plugin="good"} 0`} {
		if !strings.Contains(metrics, "ccl_profiler_plugins_switched_off_total"+want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	app.RequireStop()
	if good.n.Load() != 3 || bad.n.Load() != 2 {
		t.Errorf("they were told of %d and %d collectives, want 3 and 2", good.n.Load(), bad.n.Load())
	}
}

// Invalid libraries in the environment are reported once, and the program goes on.
func TestProfilerPlugins(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.so")
	var log strings.Builder
	n, err := node.Start(t.Context(), environ(map[string]string{
		"CARILLON_TAPE_DIR": t.TempDir(), "CARILLON_PROFILER_PLUGIN": none + ",",
	}), node.WithLog(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	comm, err := n.Runtime().World(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(ccl.Barrier(t.Context(), comm), comm.Close(), n.Stop(t.Context()))
	if told := strings.Count(log.String(), "profiler plug-in was switched off"); err != nil || told != 1 ||
		!strings.Contains(log.String(), "plugin="+none) {
		t.Errorf("%v; it is told %d times:\n%s", err, told, log.String())
	}
}
