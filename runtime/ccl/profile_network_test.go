package ccl_test

import (
	"errors"
	"log/slog"
	"os"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// network is a plug-in that checks that steps belong to operations of a proxy, and those to what a rank called.
type network struct {
	t          *testing.T
	rank       int
	ops, steps int
	owned      int // operations with a parent
	open       map[*networkEvent]bool
}

type networkEvent struct{ kind profiler.Mask }

func (n *network) Name() string                                    { return "network" }
func (n *network) Mask() profiler.Mask                             { return profiler.ProxyStep }
func (n *network) Init(i profiler.Info) (profiler.Recorder, error) { n.rank = i.Rank; return n, nil }
func (n *network) State(profiler.Handle, *profiler.Change)         {}
func (n *network) Stop(h profiler.Handle, _ *profiler.End)         { delete(n.open, h.(*networkEvent)) }
func (n *network) Finalize()                                       {}
func (n *network) Start(e *profiler.Event) profiler.Handle {
	parent, _ := e.Parent.(*networkEvent)
	switch e.Type {
	case profiler.ProxyOp:
		n.ops++
		o := e.Proxy.Owner
		if o.Rank != n.rank || o.PID != os.Getpid() || o.Generation == 0 || e.Proxy.Peer != 1-n.rank {
			n.t.Errorf("rank %d sends %+v", n.rank, e.Proxy)
		}
		if parent != nil {
			n.owned++
		}
		if parent != nil && parent.kind != profiler.Collective {
			n.t.Errorf("an operation's parent is of type %#x", uint32(parent.kind))
		}
	case profiler.ProxyStep:
		n.steps++
		if parent == nil || parent.kind != profiler.ProxyOp || !n.open[parent] {
			n.t.Errorf("a step's parent is %+v", parent)
		}
	default:
	}
	h := &networkEvent{e.Type}
	n.open[h] = true
	return h
}

// What goes to another node is told with its owner, in steps, and ends.
func TestProfileNetwork(t *testing.T) {
	var ranks errgroup.Group
	ctx, id := t.Context(), make(chan ccl.UniqueID, 1)
	plugins := make([]*network, 2)
	for r := range plugins {
		plugins[r] = &network{t: t, open: map[*networkEvent]bool{}}
		p := profiler.New(profiler.Config{Plugins: []profiler.Plugin{plugins[r]}, Log: slog.New(slog.DiscardHandler)})
		rt, err := ccl.New(ccl.Config{
			Engine: host.Kind(), Profiler: p, Log: slog.New(slog.DiscardHandler),
			Fabric: fabric.Config{HostID: []string{"one", "two"}[r], SocketIfname: "lo"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if r == 0 {
			made, err := rt.NewUniqueID()
			if err != nil {
				t.Fatal(err)
			}
			id <- made
		}
		made := <-id
		id <- made
		ranks.Go(func() error {
			comm, err := rt.InitRank(ctx, made, 2, r)
			if err != nil {
				return err
			}
			data := make([]float32, 1<<18) // 1 MiB, several steps
			for range 3 {
				err = errors.Join(err, ccl.AllReduce(ctx, comm, data, data, ccl.Sum))
			}
			err = errors.Join(err, ccl.Barrier(ctx, comm), comm.Destroy(ctx), rt.Close(ctx))
			p.Close(ctx)
			return err
		})
	}
	if err := ranks.Wait(); err != nil {
		t.Fatal(err)
	}
	for r, n := range plugins {
		if n.owned == 0 || n.steps < n.ops || len(n.open) != 0 {
			t.Errorf("rank %d: %d operations, %d with a parent, %d steps, %d that did not end", r, n.ops, n.owned,
				n.steps, len(n.open))
		}
	}
}
