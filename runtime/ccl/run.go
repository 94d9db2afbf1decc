package ccl

import (
	"context"
	"fmt"
	"runtime"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

func (c *Comm) call(ctx context.Context, op engine.Op) error {
	return c.run(ctx, op.Call, []engine.Op{op})
}

// run makes one operation, or a send and a receive that progress together, in the caller's goroutine.
func (c *Comm) run(ctx context.Context, call lifecycle.Call, ops []engine.Op) error {
	if err := c.admit(ctx, call, ops); err != nil {
		return err
	}
	if g := groupOf(ctx); g != nil {
		return g.add(c, ops)
	}
	if !c.turn.tryTake(call) {
		if err := c.queue(ctx, call, c.turn.line(call)); err != nil {
			return err
		}
	}
	mine := c.ops[:copy(c.ops[:], ops)]
	err := c.execute(ctx, call, mine)
	clear(mine) // the caller owns the buffers again
	c.turn.leave()
	runtime.KeepAlive(c) // a communicator with an operation in flight is not leaked
	return err
}

// launch makes one operation in a new goroutine, but takes its place in the order of calls now.
func (c *Comm) launch(ctx context.Context, op engine.Op) *Work {
	ops := []engine.Op{op}
	if err := c.admit(ctx, op.Call, ops); err != nil {
		return failedWork(err)
	}
	if g := groupOf(ctx); g != nil {
		if err := g.add(c, ops); err != nil {
			return failedWork(err)
		}
		return g.work
	}
	w, place := newWork(), c.turn.line(op.Call)
	c.workers.start(func() {
		if err := c.queue(ctx, op.Call, place); err != nil {
			w.finish(err)
			return
		}
		defer c.turn.leave() // leave after finish, so that no later operation appears done before this one
		w.finish(c.execute(ctx, op.Call, ops))
	})
	return w
}

// admit checks whether a call is legal, then its arguments, and completes its operations. The order matters: the
// communicator may become ready in between, and unchecked arguments must not be used then.
func (c *Comm) admit(ctx context.Context, call lifecycle.Call, ops []engine.Op) error {
	if c.absent() {
		return nilComm(call)
	}
	if err := c.life.Check(call); err != nil {
		return c.refused(ctx, call, err)
	}
	for i := range ops {
		ops[i].Algorithm = c.rt.cfg.Algorithm
		err := ops[i].Check(c.rank, c.size)
		if err != nil {
			err = c.usage(ops[i].Call, lifecycle.CodeInvalidArgument, "%v", err)
		} else {
			err = c.checkDevice(ops[i])
		}
		if err != nil {
			return c.refused(ctx, ops[i].Call, err)
		}
	}
	c.visit()
	return nil
}

// queue waits until place has the turn. If its context ends first, it abandons the operation, and with it the
// communicator: the other ranks will wait for this rank's part.
func (c *core) queue(ctx context.Context, call lifecycle.Call, place *ticket) error {
	if err := c.turn.wait(ctx, place); err != nil {
		err = c.abandoned(ctx, call)
		c.comm.Abandon(err)
		return c.fail(call, max(c.collectives.Load(), 1), err) // the operation has no number yet
	}
	return nil
}

// execute runs a collective, or point-to-point operations that progress together. The caller has the turn.
func (c *Comm) execute(ctx context.Context, call lifecycle.Call, ops []engine.Op) error {
	if c.over { // the communicator ended before this call's turn came
		return c.refused(ctx, call, c.life.Check(call))
	}
	if err := engine.CheckToSelf(ops, c.rank); err != nil {
		return c.refused(ctx, call, c.usage(call, lifecycle.CodeInvalidArgument, "%v", err))
	}
	if c.refusal.Load() != nil {
		c.refusal.Store(nil) // the caller has continued
	}
	number, sig := c.number(call, ops)
	var err error
	var algorithm algo.Algorithm
	var at int64 // when it began: before Begin, as no rank may have ended it before
	if c.tape != nil {
		at = tape.Now()
	}
	if ops[0].Stream != nil {
		algorithm = c.device.Algorithm(&ops[0])
	} else {
		algorithm = c.engine.Begin(call, number, ops)
	}
	launched := c.started(ctx, at, number, &sig, uint8(algorithm))
	var events profiled
	if c.profile.Wants(profiler.Operations) {
		events = c.profileStart(ops, number, algorithm)
	}
	if ops[0].Stream != nil {
		err = c.enqueue(call, number, launched, ops)
	} else {
		err = c.engine.Run(ctx)
	}
	if events.one != 0 {
		c.profileStop(&events, lifecycle.CodeOf(err))
	}
	c.tape.End(launched, lifecycle.CodeOf(err))
	return c.fail(call, number, err)
}

// number numbers a call, and makes its signature for the tape. The ranks agree on the numbers of collectives, and two
// ranks on those of their messages; each rank numbers operations that progress together by itself.
func (c *core) number(call lifecycle.Call, ops []engine.Op) (uint64, tape.Signature) {
	op := &ops[0]
	sig := tape.Signature{
		Call: call, DataType: uint8(op.DataType), Reduction: uint8(op.Reduction), Peer: int32(op.Peer),
		Bytes: uint64(max(len(op.Send), len(op.Recv))),
	}
	if op.Call.IsCollective() {
		return c.collectives.Add(1), sig
	}
	if c.messages == nil {
		c.messages = make([]pairCounter, c.size)
	}
	var number uint64
	for i := range ops {
		m := &c.messages[ops[i].Peer]
		counter := &m.received
		if ops[i].Call == lifecycle.CallSend {
			counter = &m.sent
		}
		*counter++
		number = *counter
		ops[i].Seq = number
		c.tape.Messages(ops[i].Peer, m.sent, m.received)
	}
	if call == op.Call {
		return number, sig
	}
	sig.Peer, sig.Bytes = -1, 0
	for i := range ops {
		sig.DataType = uint8(ops[i].DataType)
		sig.Bytes += uint64(len(ops[i].Send) + len(ops[i].Recv))
	}
	c.together++
	return c.together, sig
}

// overtaken returns why a call whose turn has come is illegal now: an earlier call ended the communicator. It returns
// nil if none did. The caller has the turn.
func (c *core) overtaken(call lifecycle.Call) error {
	if !c.over {
		return nil
	}
	return c.life.Check(call)
}

func (c *core) abandoned(ctx context.Context, call lifecycle.Call) error {
	return &SystemError{
		Code: lifecycle.CodeOf(ctx.Err()),
		Op:   fmt.Sprintf("%s on %s: waiting for the call before it", call, c),
		Err:  context.Cause(ctx),
	}
}
