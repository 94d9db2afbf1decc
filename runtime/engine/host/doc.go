// Package host runs collectives and point-to-point operations on host memory: it carries out the plans of package algo
// over the connections of one rank, in the caller's goroutine.
//
// An operation is one loop. Each pass lets both directions of every connection do as much of their current step as the
// plan's edges and the transport allow. After a pass in which nothing moved, the Waiter spins, yields and finally
// sleeps:
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
// Before its data, each rank sends the other ranks a header that says which call it makes: the operation's signature.
// No rank writes to the user's receive buffer, and no operation ends, before it has all headers and they agree. So
// ranks that make different calls all get an error that says who called what, with their buffers untouched. Data does
// not wait for the agreement: it follows right behind the header. Any part of a large message that arrives after the
// agreement is received directly into the buffer, if the transport supports it (transport.Placer).
//
// # On the stream
//
// A rank sends another rank a sequence of messages, each padded to a multiple of 8 bytes:
//
//	collective, on a Board       the plan's messages
//	collective, up to 16 ranks   header, then the plan's messages, to every other rank (to some, the header alone)
//	collective, more ranks       ceil(log2 n) digests (see digest.go), then the plan's messages
//	receive                      header; it tells the sender that it is being received
//	send                         header, data
//
// If all ranks share memory, they have a Board and post each collective's header there, once for all other ranks. Small
// data is posted with the header; such a collective sends nothing, as its plan, algo.OneShot or algo.TwoShot, reads the
// posts. Begin posts, so that a post travels while the caller records the operation. Run then only polls the other
// ranks' posts for a microsecond, unless ranks share cores.
//
// In steady state an operation allocates nothing, starts no goroutine, and makes no system call of its own.
package host
