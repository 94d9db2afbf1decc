package ncclras

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// monitorCommand asks for both groups of events: of processes that come and are considered dead, and of connections
// between processes, which come in numbers when something is wrong.
const monitorCommand = "MONITOR lifecycle,trace"

// errGiven means that Monitor yielded its connection to a Status.
var errGiven = errors.New("a status is asked for")

// Monitor reports NCCL's events about processes (since 2.29.2) until ctx ends, and then returns nil. It holds the
// node's connection, and yields it to a Status. If the connection ends, if no process is listening yet, or if another
// process of this host has the connection, it connects again, at most every five seconds and only in quiet times. An
// existing connection stays while communicators are created, as nothing is sent on it. on is called on Monitor's
// goroutine, one event at a time, and must not block.
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
		wait := c.retry
		var refused *RefusedError
		switch err := c.watch(ctx, on); {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &refused):
			return err
		case errors.Is(err, errGiven):
			wait = 0 // the Status is first in line
		}
		again.Reset(wait)
	}
}

// watch monitors over one connection.
func (c *Client) watch(ctx context.Context, on func(Event)) error {
	if !c.cfg.Quiet() {
		return ErrNotQuiet
	}
	lock, err := c.take(ctx)
	if err != nil {
		return err
	}
	defer c.release(lock)
	ctx, cancel := context.WithCancelCause(ctx)
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cancel(nil)
	busy.Go(func() { c.yield(ctx, cancel) })
	err = c.listen(ctx, on)
	if context.Cause(ctx) != nil {
		return context.Cause(ctx) // which ended the connection
	}
	return err
}

// yield cancels when a Status waits. It checks before it waits to be woken, as the connection before this one may have
// consumed the wake that was meant for this one.
func (c *Client) yield(ctx context.Context, cancel context.CancelCauseFunc) {
	for c.waiting.Load() == 0 {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
	}
	cancel(errGiven)
}

// listen connects, and reports events until the connection ends.
func (c *Client) listen(ctx context.Context, on func(Event)) error {
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
	err = c.events(k, on)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	on(Event{Name: Lost, Err: err})
	return err
}

// events reads a connection to its end.
func (c *Client) events(k *conn, on func(Event)) error {
	var events events
	for {
		line, err := k.line()
		switch {
		case errors.Is(err, errLine):
			return fmt.Errorf("ncclras: an event with %w", errLine)
		case err != nil:
			return fmt.Errorf("ncclras: NCCL ended the connection: %w", err)
		}
		if ev, ok := events.line(line); ok {
			on(ev)
		}
	}
}
