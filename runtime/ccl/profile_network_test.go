package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// network is a plug-in that checks that steps belong to operations of a proxy, and these to calls of a rank.
type network struct {
	t     *testing.T
	rank  int
	owned map[bool]int   // operations with a parent, by whether they send
	steps map[string]int // by their operation and their states
	open  map[*networkEvent]bool
	waits func() // called when a send waits for its receiver
}

type networkEvent struct {
	kind   profiler.Mask
	parent *networkEvent
	isSend bool
	states string
}

func (n *network) Name() string                                    { return "network" }
func (n *network) Mask() profiler.Mask                             { return profiler.ProxyStep }
func (n *network) Init(i profiler.Info) (profiler.Recorder, error) { n.rank = i.Rank; return n, nil }
func (n *network) Finalize()                                       {}

func (n *network) State(h profiler.Handle, c *profiler.Change) {
	of := h.(*networkEvent)
	of.states += fmt.Sprintf(" %d", c.State)
	if c.State != profiler.SendPeerWait {
		return
	}
	if call := of.parent.parent; call != nil && call.kind == profiler.PointToPoint {
		n.waits()
	}
}

func (n *network) Stop(h profiler.Handle, e *profiler.End) {
	ended := h.(*networkEvent)
	delete(n.open, ended)
	if ended.kind == profiler.ProxyStep {
		n.steps[fmt.Sprintf("send=%v%s", ended.isSend, ended.states)]++
	}
	if e.Code != lifecycle.CodeOK {
		n.t.Errorf("rank %d: %+v ended with %v", n.rank, ended, e.Code)
	}
}

func (n *network) Start(e *profiler.Event) profiler.Handle {
	parent, _ := e.Parent.(*networkEvent)
	h := &networkEvent{kind: e.Type, parent: parent, isSend: e.Proxy.IsSend}
	switch e.Type {
	case profiler.ProxyOp:
		o := e.Proxy.Owner
		if o.Rank != n.rank || o.PID != os.Getpid() || o.Generation == 0 || e.Proxy.Peer != 1-n.rank {
			n.t.Errorf("rank %d sends %+v", n.rank, e.Proxy)
		}
		if parent != nil {
			n.owned[h.isSend]++
		}
		if parent != nil && parent.kind&(profiler.Collective|profiler.PointToPoint) == 0 {
			n.t.Errorf("an operation's parent is of type %#x", uint32(parent.kind))
		}
	case profiler.ProxyStep:
		if parent == nil || parent.kind != profiler.ProxyOp || !n.open[parent] {
			n.t.Fatalf("a step's parent is %+v", parent)
		}
		h.isSend = parent.isSend
	default:
	}
	n.open[h] = true
	return h
}

// Traffic to and from another node is reported with its owner, in steps with their states, and with its end. So is the
// wait for a receiver that takes nothing.
func TestProfileNetwork(t *testing.T) {
	var ranks errgroup.Group
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	id := make(chan ccl.UniqueID, 1)
	plugins, waits := make([]*network, 2), make(chan struct{})
	waiting := sync.OnceFunc(func() { close(waits) })
	for r := range plugins {
		plugins[r] = &network{
			t: t, owned: map[bool]int{}, steps: map[string]int{}, open: map[*networkEvent]bool{}, waits: waiting,
		}
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
			data := make([]float32, 1<<20) // 4 MiB: several steps, and more than a window holds
			for range 3 {
				err = errors.Join(err, ccl.AllReduce(ctx, comm, data, data, ccl.Sum))
			}
			if err = errors.Join(err, ccl.Barrier(ctx, comm)); r == 0 {
				err = errors.Join(err, ccl.Send(ctx, comm, data, 1))
			} else {
				select {
				case <-waits:
				case <-ctx.Done():
				}
				err = errors.Join(err, ccl.Recv(ctx, comm, data, 0))
			}
			err = errors.Join(err, comm.Destroy(ctx), rt.Close(ctx))
			p.Close(ctx)
			if off := p.Status()[0].Off; off != "" {
				t.Errorf("rank %d's plug-in is off: %s", r, off)
			}
			return err
		})
	}
	if err := ranks.Wait(); err != nil {
		t.Fatal(err)
	}
	for r, n := range plugins {
		must := []string{"send=true 9", "send=false 10 12", "send=true 20"} // the last of rank 0, at least
		for i, step := range must {
			if n.steps[step] == 0 && (i < 2 || r == 0) {
				t.Errorf("rank %d has no step %q, but %v", r, step, n.steps)
			}
			delete(n.steps, step)
		}
		if n.owned[true] == 0 || n.owned[false] == 0 {
			t.Errorf("rank %d: operations with a parent, by whether they send: %v", r, n.owned)
		}
		if len(n.steps) != 0 || len(n.open) != 0 {
			t.Errorf("rank %d: steps with other states %v, %d that did not end", r, n.steps, len(n.open))
		}
	}
}
