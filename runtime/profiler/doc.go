// Package profiler tells plug-ins what the communicators of a process do, in NCCL's event model.
//
//	runtime/ccl ──── groups, collectives, sends and receives ──┐           ┌─ queue ─ goroutine ─ Plugin
//	                                                          Comm ────────┤
//	runtime/proxy ── operations and steps of the network ──────┘           └─ queue ─ goroutine ─ Plugin
//
// What tells of events, for each rank of a communicator; all of it may be called on nil, and from any goroutine:
//
//	func (p *Profiler) Comm(ctx context.Context, info Info) *Comm
//	func (c *Comm) Bind(generation uint64)
//	func (c *Comm) Wants(types Mask) bool
//	func (c *Comm) StartGroup() ID
//	func (c *Comm) StartOperation(group ID, op *Operation) ID
//	func (c *Comm) StartProxyOp(op *ProxyOperation) ID
//	func (c *Comm) StartProxyStep(proxyOp ID, owner Owner, step int) ID
//	func (c *Comm) StartProxyControl() ID
//	func (c *Comm) State(event ID, s State, n uint64)
//	func (c *Comm) Stop(event ID, code lifecycle.Code)
//	func (c *Comm) Close()
//
// # Plug-ins
//
// A [Plugin] has a goroutine and a queue of its own. The data path puts events into the queue, which carry their time,
// and goes on; where no plug-in wants an event, that is one check. A plug-in that refuses every communicator hears of
// none. One that panics, that does not return from a call within Config.Patience, or whose queue is full, is switched
// off: this is logged once, and shown by Status. The job goes on.
//
// A call that is in no group is told as a group of one, as NCCL does. A plug-in that asks for a type of events is told
// of their parents, too.
//
// # Handles
//
// What a plug-in returns for an event never leaves the plug-in's goroutine. Elsewhere an event is an [ID], which only
// the Comm that made it knows. Whose a proxied operation is, is data of the event: an [Owner]. It
// has a parent only if its owner is this rank of this process and generation.
package profiler
