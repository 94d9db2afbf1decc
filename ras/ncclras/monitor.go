package ncclras

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// monitorCommand asks for both groups of events: of processes that come and are considered dead, and of connections
// between processes, which come in numbers when something is wrong.
const monitorCommand = "MONITOR lifecycle,trace"

// Monitor reports NCCL's events about processes (since 2.29.2) until ctx ends, and then returns nil. It holds the
// node's connection. If that ends, if no process is listening yet, or if another process of this host has it, Monitor
// connects again, at most every five seconds and only in quiet times. An existing connection stays while communicators
// are created, as nothing is sent on it. on is called on Monitor's goroutine, one event at a time, and must not block.
//
// An error means that it makes no sense to go on: a *RefusedError if NCCL doesn't know the command.
func (c *Client) Monitor(ctx context.Context, on func(Event)) error {
	if c.cfg.Version.Compare(firstMonitor) < 0 {
		return &RefusedError{"MONITOR", fmt.Sprintf("NCCL %v has none; it came with %v", c.cfg.Version, firstMonitor)}
	}
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
		err := c.watch(ctx, on)
		if refused := (*RefusedError)(nil); errors.As(err, &refused) && ctx.Err() == nil {
			return err
		}
		again.Reset(c.retry)
	}
}

// watch monitors over one connection.
func (c *Client) watch(ctx context.Context, on func(Event)) error {
	if !c.cfg.Quiet() {
		return ErrNotQuiet
	}
	release, err := lockNode(c.cfg.Dir)
	if err != nil {
		return err
	}
	defer release()
	k, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer k.close()
	if err := k.order(c.handshake, "SET FORMAT json"); err != nil {
		return err
	}
	if !c.cfg.Quiet() {
		return ErrNotQuiet
	}
	if err := k.order(c.handshake, monitorCommand); err != nil {
		return err
	}
	if err := k.SetDeadline(time.Time{}); err != nil { // events may be days apart
		return err
	}
	on(Event{Name: Watching})
	defer on(Event{Name: Lost})
	var events events
	for {
		line, err := k.line()
		if err != nil {
			return fmt.Errorf("ncclras: NCCL's events end: %w", err)
		}
		if ev, ok := events.line(line); ok {
			on(ev)
		}
	}
}
