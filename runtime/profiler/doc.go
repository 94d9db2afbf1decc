// Package profiler reports to plug-ins what the communicators of a process do, in NCCL's event model.
//
//	runtime/ccl ──── groups, collectives, sends and receives ──┐           ┌─ queue ─ goroutine ─ Plugin
//	                                                          Comm ────────┤
//	runtime/proxy ── operations and steps of the network ──────┘           └─ queue ─ goroutine ─ Plugin
//
// # Plug-ins
//
// A [Plugin] has its own goroutine and queue. The data path puts events, with their times, into the queue, and
// continues; an event that no plug-in wants costs one check. A plug-in that panics, that does not return from a call
// within Config.Patience, or whose queue is full, is switched off. This is logged once, and shown by Status. The job
// continues.
//
// A call outside a group gets its own group, as in NCCL. A plug-in that asks for a type of events also gets their
// parents.
//
// # Handles
//
// A plug-in's handle of an event never leaves the plug-in's goroutine. Elsewhere an event is an [ID] of its Comm. The
// owner of a proxied operation is data of the event: an [Owner]. The event has a parent only if the owner is this rank
// with its process and generation.
//
// # Proxies
//
// A proxied operation of runtime/proxy is reported by the rank whose connection it uses; with PXN, that rank may be in
// another process than the owner. Its steps use these of NCCL's states:
//
//	SendPeerWait   the owner has data and waits for the receiver's credit or for a free operation. The owner's process
//	               reports it before the operation begins, as an operation of one step without data
//	SendWait       the step is sent
//	RecvWait       the step is received, as an operation of the receiver with the sender as its peer
//	RecvGPUWait    the step has arrived, and waits until the rank takes it
//
// The time from an operation's start to ProxyOpInProgress is its wait for the network. There is no SendGPUWait, as an
// operation has its data from the start, and no RecvFlushWait, as data arrives in host memory. A receive has no parent
// if its data arrived before the call. Data that a rank carries for others after the end of its own communicator is not
// reported.
//
// ProxyControl has no events: the proxy's loop belongs to the process, so it has no communicator to report them to, and
// operations do not wait for it.
package profiler

//go:generate go test -run ^TestABIHeaderIsCurrent$ . -rewrite
