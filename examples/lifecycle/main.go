// Command lifecycle makes the classic mistakes with communicators on purpose, one after the other, and shows the
// outcome of each: the error that the program gets, and the span in the traces.
//
//	go run ./examples/lifecycle
//
// None of them crashes or hangs. mistakes.go has the mistakes, a few lines each; this file makes them, and show.go
// prints the outcomes. Each mistake gets a node of its own, with two ranks in this process. Its outcome is printed
// after the node has stopped, when all its spans have been recorded.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &printer{out: os.Stdout}); err != nil {
		fmt.Fprintln(os.Stderr, "lifecycle:", err)
		os.Exit(1)
	}
}

// run makes all mistakes. It returns an error only if something else goes wrong.
func run(ctx context.Context, p *printer) error {
	tapes, err := os.MkdirTemp("", "lifecycle-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tapes) //nolint:errcheck // what is left is in the folder for temporary files
	for i, m := range mistakes {
		o, err := m.commit(ctx, tapes)
		if err != nil {
			return fmt.Errorf("%s: %w", m.title, err)
		}
		p.show(i+1, m, o)
	}
	p.whereToLook()
	return nil
}

type mistake struct {
	title string
	why   string                                  // why it matters
	make  func(ctx context.Context, j *job) error // makes the mistake, and returns the resulting error
	span  string                                  // the name of the span that shows it; "" if there is none
	opts  []ccl.Option                            // for its communicator
	leave bool                                    // don't close the communicator afterwards
}

// job is the setting of a mistake: a communicator of two ranks, both in this process.
type job struct {
	*node.Node
	world []*ccl.Comm // by rank
}

type outcome struct {
	err    error
	log    string       // what the runtime logged
	traces *trace.Store // the node's traces
}

// commit makes the mistake, on a node of its own.
func (m mistake) commit(ctx context.Context, tapes string) (o outcome, err error) {
	var log bytes.Buffer
	n, err := node.Start(ctx, node.WithTapeDir(tapes), node.WithHealth(""), node.WithLog(logTo(&log)),
		node.WithSignals(false))
	if err != nil {
		return o, err
	}
	o.err, err = m.makeOn(ctx, n)
	err = errors.Join(err, n.Stop(ctx)) // the traces stay readable
	o.log, o.traces = log.String(), n.Telemetry().Traces()
	return o, err
}

func (m mistake) makeOn(ctx context.Context, n *node.Node) (answer, err error) {
	world, err := n.Runtime().InitAll(ctx, 2, append([]ccl.Option{ccl.WithName("world")}, m.opts...)...)
	if err != nil && !errors.Is(err, ccl.ErrInProgress) {
		return nil, err
	}
	for _, c := range world {
		if err := c.Wait(ctx); err != nil {
			return nil, err
		}
	}
	answer = m.make(ctx, &job{Node: n, world: world})
	if m.leave {
		return answer, nil
	}
	return answer, errors.Join(world[0].Close(), world[1].Close())
}

func logTo(out *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}
