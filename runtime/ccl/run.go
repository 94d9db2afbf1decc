package ccl

import (
	"context"
	"fmt"
	"runtime"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// run makes one operation, in the caller's goroutine.
func (c *Comm) run(ctx context.Context, op host.Op) error {
	if g := groupOf(ctx); g != nil {
		return g.add(c, op)
	}
	err := c.runAlone(ctx, op)
	runtime.KeepAlive(c) // a communicator with an operation in flight is not leaked
	return err
}

func (c *Comm) runAlone(ctx context.Context, op host.Op) error {
	if err := c.life.Check(op.Call); err != nil {
		return c.refused(ctx, op.Call, err)
	}
	c.visit()
	if !c.turn.tryTake(op.Call) {
		if err := c.queue(ctx, op.Call, c.turn.line(op.Call)); err != nil {
			return err
		}
	}
	c.op = op
	err := c.execute(ctx, &c.op)
	c.op = host.Op{} // the buffers are the caller's again
	c.turn.leave()
	return err
}

// launch makes one operation in a goroutine of its own, with its place in the order of calls taken now.
func (c *Comm) launch(ctx context.Context, op host.Op) *Work {
	if g := groupOf(ctx); g != nil {
		if err := g.add(c, op); err != nil {
			return failedWork(err)
		}
		return g.work
	}
	if err := c.life.Check(op.Call); err != nil {
		return failedWork(c.refused(ctx, op.Call, err))
	}
	c.visit()
	w, place := newWork(), c.turn.line(op.Call)
	c.crew.start(func() {
		if err := c.queue(ctx, op.Call, place); err != nil {
			w.finish(err)
			return
		}
		defer c.turn.leave() // afterwards, so that nobody sees a later one done before this one
		w.finish(c.execute(ctx, &op))
	})
	return w
}

// runPair makes a send and a receive that progress together.
func (c *Comm) runPair(ctx context.Context, send, recv host.Op) error {
	if g := groupOf(ctx); g != nil {
		if err := g.add(c, send); err != nil {
			return err
		}
		return g.add(c, recv)
	}
	defer runtime.KeepAlive(c)
	if err := c.life.Check(lifecycle.CallSendRecv); err != nil {
		return c.refused(ctx, lifecycle.CallSendRecv, err)
	}
	c.visit()
	if err := c.queue(ctx, lifecycle.CallSendRecv, c.turn.line(lifecycle.CallSendRecv)); err != nil {
		return err
	}
	defer c.turn.leave()
	return c.executePairs(ctx, lifecycle.CallSendRecv, []host.Op{send, recv})
}

// queue waits until place has the turn. A context that ends first abandons the operation, and with it the communicator:
// the other ranks will wait for this rank's part.
func (c *core) queue(ctx context.Context, call lifecycle.Call, place *ticket) error {
	if err := c.turn.wait(ctx, place); err != nil {
		err = c.abandoned(call, err)
		c.engine.Abandon(err)
		return c.fail(call, err)
	}
	return nil
}

// execute runs one operation. The caller has the turn.
func (c *Comm) execute(ctx context.Context, op *host.Op) error {
	if c.over { // it ended before this call's turn came
		return c.refused(ctx, op.Call, c.life.Check(op.Call))
	}
	c.accepted()
	number := c.number(op)
	sig := signature(op)
	launched := c.started(ctx, number, &sig, uint8(c.engine.Algorithm(op)))
	err := c.engine.Run(ctx, number, op)
	if err == nil {
		c.tape.End(launched, lifecycle.CodeOK)
		return nil
	}
	c.tape.End(launched, lifecycle.CodeOf(err))
	return c.fail(op.Call, err)
}

// accepted forgets that an operation was refused: the caller has gone on.
func (c *core) accepted() {
	if c.refusal.Load() != nil {
		c.refusal.Store(nil)
	}
}

// overtaken is why a call whose turn has come is illegal now: one before it in the line ended the communicator. It is
// nil after a Finalize that failed, too, for a call that is legal on a failed communicator. The caller has the turn.
func (c *core) overtaken(call lifecycle.Call) error {
	if !c.over {
		return nil
	}
	return c.life.Check(call)
}

// executePairs runs point-to-point operations that progress together. The caller has the turn.
func (c *Comm) executePairs(ctx context.Context, call lifecycle.Call, ops []host.Op) error {
	if c.over {
		return c.refused(ctx, call, c.life.Check(call))
	}
	c.accepted()
	sig := tape.Signature{Call: call, Peer: -1}
	for i := range ops {
		sig.DataType = uint8(ops[i].DataType)
		sig.Bytes += uint64(len(ops[i].Send) + len(ops[i].Recv))
	}
	number := c.collectives.Load() // not a call that all ranks make: it has the number of the collective before it
	launched := c.started(ctx, number, &sig, 0)
	err := c.engine.RunGroup(ctx, number, ops)
	c.tape.End(launched, lifecycle.CodeOf(err))
	return c.fail(call, err)
}

// number gives an operation the number by which the ranks know that they speak of the same one: how many collectives
// this communicator has made, or how many messages went from one rank to the other.
func (c *core) number(op *host.Op) uint64 {
	switch op.Call {
	case lifecycle.CallSend:
		c.countMessages()
		c.messages[op.Peer].sent++
		return c.messages[op.Peer].sent
	case lifecycle.CallRecv:
		c.countMessages()
		c.messages[op.Peer].received++
		return c.messages[op.Peer].received
	default:
		return c.collectives.Add(1)
	}
}

func (c *core) countMessages() {
	if c.messages == nil {
		c.messages = make([]pairCounter, c.size)
	}
}

func signature(op *host.Op) tape.Signature {
	return tape.Signature{
		Call: op.Call, DataType: uint8(op.DataType), Reduction: uint8(op.Reduction), Peer: int32(op.Peer),
		Bytes: uint64(max(len(op.Send), len(op.Recv))),
	}
}

// invalid records a call that was refused, or whose arguments were, and returns its error.
func (c *Comm) invalid(ctx context.Context, err error) error {
	usage, ok := asUsage(err)
	if !ok || c.absent() {
		return err
	}
	if usage.Code == lifecycle.CodeInvalidArgument {
		refusal := usage.Call.String() + ": " + usage.Detail
		c.refusal.Store(&refusal)
	}
	return c.refused(ctx, usage.Call, err)
}

// abandoned is the error of a call whose context ended before its turn came.
func (c *core) abandoned(call lifecycle.Call, cause error) error {
	return &SystemError{
		Code: lifecycle.CodeTimeout,
		Op:   fmt.Sprintf("%s on %s: waiting for the call before it", call, c),
		Err:  cause,
	}
}

// describe names a communicator for people.
func describe(name string, id CommID, rank, size int) string {
	return fmt.Sprintf("%s (%s) rank %d of %d", name, id.Short(), rank, size)
}
