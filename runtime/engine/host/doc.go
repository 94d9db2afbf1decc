// Package host runs collectives and point-to-point operations on host memory: it carries out the plans of package
// algo over the connections of one rank, in the goroutine of the caller.
//
// An operation is one loop. A pass over the loop lets each direction of each connection do as much of its head step as
// the plan's edges and the transport allow; a pass in which nothing moved goes to the Waiter, which spins, yields and
// at last sleeps:
//
//	       ┌──────────────────────────────────────────────────────────┐
//	       ▼                                                          │
//	for each peer:  send what may be sent  (straight from the buffer) │
//	                take what has come     (reduce or copy from the   │
//	                                        transport's own window)   │ moved
//	local steps                                                       │
//	       │ nothing moved                                            │
//	       ▼                                                          │
//	peer lost? interrupted? ── Waiter.Idle(ctx) ──────────────────────┘
//
// Before its data, each rank sends a header to the others that says which call it makes: the operation's signature.
// No rank writes to the user's receive buffer before it has all headers and they agree, and no operation ends before.
// So ranks that make different calls all get an error that says who called what, with their buffers untouched.
// Data does not wait for the agreement: it travels right behind the header. What of a large message has not arrived by
// then is received in the buffer itself, where the transport can (transport.Placer).
//
// # On the stream
//
// What a rank sends to another is a sequence of messages, each padded to a multiple of 8 bytes:
//
//	collective, on a Board       the plan's messages
//	collective, up to 16 ranks   header, then the plan's messages, to every other rank (to some, the header alone)
//	collective, more ranks       ceil(log2 n) digests (see digest.go), then the plan's messages
//	receive                      header; it tells the sender that it is being received
//	send                         header, data
//
// Ranks that all share memory have a Board, and post each collective's header there, once for all others. What is small
// goes along, and such a collective sends nothing: its plan, algo.OneShot or algo.TwoShot, reads the posts. Begin posts,
// so that a post travels while the caller records the operation; Run then looks at the others' posts and at nothing else
// for a microsecond, unless ranks share cores.
//
// In steady state an operation allocates nothing, starts no goroutine, and makes no system call of its own.
package host
