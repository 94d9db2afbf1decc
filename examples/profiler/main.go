// Command profiler sums vectors on two ranks while a plug-in measures how long each collective takes. c/plugin.c is the
// same plug-in in C, for NCCL and for Carillon; README.md shows both.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/runtime/profiler"
)

func main() {
	if err := run(context.Background(), os.Stdout, node.FromEnv()); err != nil {
		log.Fatal(err)
	}
}

// run makes five all-reduces and a broadcast on two ranks, and writes to out what the plug-in saw when they have ended.
func run(ctx context.Context, out io.Writer, opts ...node.Option) (err error) {
	n, err := node.Start(ctx, append(opts, node.WithProfiler(&timing{out: out}))...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Stop(ctx)) }() // the plug-in has then got all events
	ranks, err := n.Runtime().InitAll(ctx, 2, ccl.WithName("pair"))
	if err != nil {
		return err
	}
	var work errgroup.Group
	for _, comm := range ranks {
		work.Go(func() error {
			data := make([]float32, 1<<20)
			for range 5 {
				if err := ccl.AllReduce(ctx, comm, data, data, ccl.Sum); err != nil {
					return err
				}
			}
			return errors.Join(ccl.Broadcast(ctx, comm, data, data, 0), comm.Destroy(ctx))
		})
	}
	return work.Wait()
}

// timing is the plug-in. One goroutine calls all its methods and those of its communicators.
type timing struct{ out io.Writer }

func (*timing) Name() string { return "timing" }

// Mask asks for collectives. Their groups are reported with them.
func (*timing) Mask() profiler.Mask { return profiler.Collective }

func (t *timing) Init(info profiler.Info) (profiler.Recorder, error) {
	return &comm{out: t.out, info: info, spent: map[string]time.Duration{}, count: map[string]int{}}, nil
}

// comm is the plug-in's state for a rank of a communicator.
type comm struct {
	out   io.Writer
	info  profiler.Info
	spent map[string]time.Duration
	count map[string]int
}

// collective is a handle; the runtime passes it to Stop.
type collective struct {
	call  string
	began time.Time
}

// Start takes an event. If it returns nil, the plug-in gets no further calls for the event.
func (c *comm) Start(e *profiler.Event) profiler.Handle {
	if e.Type != profiler.Collective {
		return nil
	}
	return &collective{e.Op.Call.String(), e.At}
}

func (c *comm) State(profiler.Handle, *profiler.Change) {}

func (c *comm) Stop(h profiler.Handle, e *profiler.End) {
	op := h.(*collective)
	c.spent[op.call] += e.At.Sub(op.began)
	c.count[op.call]++
}

// Finalize is called at the communicator's end.
func (c *comm) Finalize() {
	for _, call := range []string{"all_reduce", "broadcast"} {
		if n := c.count[call]; n > 0 {
			_, _ = fmt.Fprintf(c.out, "%s rank %d: %d %s, %v each\n",
				c.info.Name, c.info.Rank, n, call, (c.spent[call] / time.Duration(n)).Round(time.Microsecond))
		}
	}
}
