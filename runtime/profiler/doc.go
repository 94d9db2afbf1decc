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
//	func (c *Comm) StartProxyOp(op *ProxyOperation, s State) ID
//	func (c *Comm) StartProxyStep(proxyOp ID, owner Owner, step int, s State, n uint64) ID
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
// the Comm that made it knows. Whose a proxied operation is, is data of the event: an [Owner]. It has a parent only if
// its owner is this rank of this process and generation.
//
// # Proxies
//
// A proxied operation of runtime/proxy is told by the rank whose connection it uses. With PXN that may be a rank of
// another process than the owner's. Its steps have these of NCCL's states:
//
//	SendPeerWait   the owner has data and waits, for the receiver's credit or for a free operation. It is told in the
//	               owner's process, before the operation begins, as an operation of one step without data
//	SendWait       the step goes out
//	RecvWait       the step comes in. Each that does is an operation of the receiver, with the sender as its peer
//	RecvGPUWait    it has come, and waits until the rank takes it
//
// The time from an operation's start to ProxyOpInProgress is its wait for the network. There is no SendGPUWait, as an
// operation is made of data that is there, and no RecvFlushWait, as data comes through the memory of the host. A
// receive has no parent if its data came before the call. What a rank still carries for others when its own
// communicator has ended is not told.
//
// ProxyControl has no events: the proxy's loop is the process's and has no communicator whose context they could get,
// and operations do not wait for it, so that its sleep says nothing of theirs.
package profiler
