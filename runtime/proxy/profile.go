package proxy

import (
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/profiler"
)

// Profile has the plug-ins of the profiler told of what the Endpoint's rails send, for its own rank and for others:
// whose an operation is, they are told as data.
func (e *Endpoint) Profile(c *profiler.Comm) {
	c.Bind(e.token.Generation)
	e.profile.Store(c)
}

// profileStep tells of the next step of an operation, of n bytes, and with the first of the operation. Those without
// data are not told.
func (e *Endpoint) profileStep(o *op, n int) {
	c := e.profile.Load()
	if o.kind != kindData || !c.Wants(profiler.ProxyOp|profiler.ProxyStep) {
		return
	}
	owner := profiler.Owner{
		Comm: c.Owner().Comm, Rank: o.token.Rank, PID: o.token.PID, Generation: o.token.Generation,
	}
	if o.sent == n {
		o.event = c.StartProxyOp(&profiler.ProxyOperation{
			Owner: owner, Peer: o.to, Steps: (len(o.data) + stepBytes - 1) / stepBytes, ChunkSize: stepBytes,
			IsSend: true,
		})
		c.State(o.event, profiler.ProxyOpInProgress, 0)
	}
	if o.event != 0 {
		o.step = c.StartProxyStep(o.event, owner, (o.sent-n)/stepBytes)
		c.State(o.step, profiler.SendWait, uint64(n))
	}
}

// profileStepEnd tells that the step of an operation has gone out, if it was told of.
func (e *Endpoint) profileStepEnd(o *op, code lifecycle.Code) {
	e.profile.Load().Stop(o.step, code)
	o.step = 0
}

// profileEnd tells of the end of an operation, if it was told of.
func (e *Endpoint) profileEnd(o *op, code lifecycle.Code) {
	e.profileStepEnd(o, code)
	e.profile.Load().Stop(o.event, code)
	o.event = 0
}
