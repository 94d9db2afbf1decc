// Package proxy sends what goes from the ranks of a node to other nodes, and hands out what arrives from there.
//
// A process has one [Proxy]. A rank of a communicator has an [Endpoint] there: its rails, which are its connections
// with ranks of other nodes, and its streams, one to each rank that it reaches through the network. A stream is a
// transport.Conn; what it is given becomes operations, which a rail sends in steps.
//
//	rank 0 ── stream to 3 ──┐ operation             node 1
//	                        ▼                     ┌────────┐
//	rank 1 ── stream to 3 ─ rail of rank 1 ───────▶ rank 3 │  its streams from 0 and 1
//	           node 0       (connection 1–3)      │ rank 2 │
//	                                              └────────┘
//
// # PXN
//
// A rank is connected with the ranks of its rail alone: those of other nodes with its local index. A message to any
// other rank of a node goes through the rank of its own node that is on that one's rail, its carrier (see [Routes]). So
// a rank has connections with nodes - 1 others in place of ranks - 1, and what the ranks of a node send to one rank at
// a time goes out together. Without PXN each rank is its own carrier.
//
// # Operations
//
// What a rank sends through its own process is an operation of the process's pool, which has 1,024 of them: small data
// is copied there, large data is sent from the caller's memory. An operation for the proxy of another process is in a
// slot of that process's segment, which is memory that the ranks of the node share; those of its own ranks that the
// pool has no room for are there, too. Where both are exhausted, the sender waits.
//
// No goroutine is needed to send: whoever has something for a rail sends all that is queued there, as long as the
// kernel takes it, and goes on; a goroutine of the connection sends the rest when there is room. What other processes
// hand over is taken by a rank of the process that waits anyway, or by the Proxy's goroutine if none does.
//
// An operation in which every rank sends to every other one, such as an all-to-all, needs what all of them send. What
// is small of that is sent when the last rank of the node has handed its part over, together (see gather).
//
// # Flow control
//
// A receiver has a window for each stream, and tells the sender what it has taken of it (a credit). So whatever arrives
// on a rail finds room, and a rank that takes nothing holds nobody else up.
//
// # Tokens
//
// An operation that another rank sends carries whose it is as a [Token]: communicator, rank, process and a random
// generation. It is checked where it enters the carrier's process, and where it arrives at the other node. One that
// does not fit is refused and counted: its data reaches nobody. No pointer ever leaves its process.
//
// # Losses
//
// All that a rank had sent arrives before it is lost. A connection that breaks takes the streams along that it carries;
// they name the rank at its other end. Of a rank of the node that dies, its carriers tell the ranks that it had sent
// to.
package proxy
