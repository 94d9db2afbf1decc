// Package proxy exchanges data between the ranks of a node and other nodes.
//
// A process has one [Proxy]. A rank of a communicator has an [Endpoint] there: its rails, which are its connections
// with ranks of other nodes, and its streams, one to each rank that it reaches through the network. A stream is a
// transport.Conn, whose data becomes operations, which a rail sends in steps.
//
//	rank 0 ── stream to 3 ──┐ operation             node 1
//	                        ▼                     ┌────────┐
//	rank 1 ── stream to 3 ─ rail of rank 1 ───────▶ rank 3 │  its streams from 0 and 1
//	           node 0       (connection 1–3)      │ rank 2 │
//	                                              └────────┘
//
// # PXN
//
// A rank is connected only with the ranks of its rail: those of other nodes with its local index. A message to another
// rank of a node goes through its carrier: the rank of the sender's node that is on the receiver's rail (see [Routes]).
// So a rank has connections with nodes - 1 other ranks instead of ranks - 1, and data of several ranks of a node for
// one rank is sent together. Without PXN each rank is its own carrier.
//
// # Operations
//
// The data that a rank sends through its own process is in operations of the process's pool, which has 1,024 of them:
// small data is copied there, large data is sent from the caller's memory. An operation for the proxy of another
// process is in a slot of that process's segment, which is memory that the ranks of the node share; a process's own
// operations are there, too, if its pool is exhausted. If both are exhausted, the sender waits.
//
// Large data for the proxy of another process goes through a pipe of that process's, up to a step in each: so it is
// copied into the kernel once, by its sender, and the carrier sends the pages that it is in. From 128 KiB on it is not
// even copied: the sender lends the kernel the pages of its own memory, and has them back when the receiver says that
// the data has arrived. A carrier sends the header of a step only when all of the step is in the pipe, and empties a
// pipe before it is used again; in place of what another process has read from it, the carrier sends zeros. So a sender
// that dies or lies tears nothing. A protected connection (see package door) seals what is in memory: a process whose
// connections all are has no pipes. Without a free pipe, large data is in slots. A process that carries has 8 pipes,
// which hold 4 MiB of the 64 that Linux lets a user have in pipes by default (fs.pipe-user-pages-soft); where those are
// used up, it has fewer.
//
// Sending needs no goroutine: a rank that has data for a rail sends all that is queued there, as long as the kernel has
// room, and a goroutine of the connection sends the rest later. Operations of other processes are sent by a rank of the
// process that is in an operation, when it waits, or between two pieces of large data of its own for other nodes, or by
// the Proxy's goroutine if there is no such rank.
//
// A rank that waits receives what is small itself, if there is a core for each rank of its host: a goroutine of the
// connection would take longer to wake. All else is received by that goroutine.
//
// In an operation in which every rank sends to every other rank, such as an all-to-all, a receiver needs the data of
// all ranks. Small data of such an operation is sent together, when the last rank of the node has submitted its part
// (see coalescer).
//
// # Flow control
//
// A receiver has a window for each stream, and tells the sender how much of it was taken (credit). So data that arrives
// on a rail always finds room, and a rank that doesn't take its data blocks no other. Large data is read from the
// socket into the memory where the rank wants it, if the rank has said so in time (see transport.Placer), all other
// data into a ring.
//
// # Tokens
//
// An operation that is sent by another rank has its owner as a [Token]: communicator, rank, process and a random
// generation. It is checked when it enters the carrier's process, and when it arrives at the other node. An operation
// whose token does not fit is refused and counted, and its data is dropped. No pointer ever leaves its process.
//
// # Losses
//
// All data that a rank had sent arrives before it is lost. A broken connection ends the streams that it carries, with
// an error that names the rank at its other end. If a rank of the node dies, its carriers tell the peers of its
// streams.
package proxy
