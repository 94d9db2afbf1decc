// Package proxy exchanges data between the ranks of a node and other nodes.
//
// A process has one [Proxy]. A rank of a communicator has an [Endpoint] there. It holds the rank's rails, which are its
// connections to ranks of other nodes, and its streams, one to each rank that it reaches through the network. A stream
// is a transport.Conn: its data is divided into operations, which a rail sends in steps.
//
//	rank 0 ── stream to 3 ──┐ operation             node 1
//	                        ▼                     ┌────────┐
//	rank 1 ── stream to 3 ─ rail of rank 1 ───────▶ rank 3 │  its streams from 0 and 1
//	           node 0       (connection 1–3)      │ rank 2 │
//	                                              └────────┘
//
// # PXN
//
// A rank is connected only to the ranks of its rail: those of other nodes with its local index. A message to another
// rank of a node goes through its carrier: the rank of the sender's node that is on the receiver's rail (see [Routes]).
// So a rank has connections to nodes - 1 other ranks instead of ranks - 1, and data that several ranks of a node send
// to one rank is sent together. Without PXN each rank is its own carrier.
//
// # Operations
//
// The data that a rank sends through its own process uses operations from the process's pool of 1,024: small data is
// copied into the operation, large data is sent from the caller's memory. An operation for the proxy of another process
// uses a slot of that process's segment, which is memory that the ranks of the node share. If the pool of a process is
// exhausted, its own operations use its segment, too. If both are exhausted, the sender waits.
//
// Large data for the proxy of another process goes through pipes of that process, up to one step in each: the sender
// copies it into the kernel once, and the carrier sends the pages that hold it. From 128 KiB on, it is not copied at
// all: the sender lends the kernel the pages of its own memory, and may reuse them when the receiver reports that the
// data has arrived. A carrier sends the header of a step only when the whole step is in the pipe, and empties a pipe
// before it is reused. If another process has read data from the pipe, the carrier sends zeros instead. So a sender
// that dies or lies can't break the framing. A protected connection (see package door) seals data in memory: a process
// whose connections are all protected has no pipes. Without a free pipe, large data goes through slots. A process that
// carries has 8 pipes, which hold 4 MiB of the 64 MiB that Linux allows a user in pipes by default
// (fs.pipe-user-pages-soft); if these are used up, it has fewer.
//
// Sending needs no goroutine: a rank that has data for a rail sends everything queued there, as long as the kernel has
// room, and a goroutine of the connection sends the rest later. Operations of other processes are sent by a rank of the
// process that is in an operation, when it waits or between two pieces of its own large data for other nodes, or by the
// Proxy's goroutine if there is no such rank.
//
// A waiting rank receives small data itself, if there is a core for each rank of its host: waking a goroutine of the
// connection would take longer. That goroutine receives all other data.
//
// In an operation in which every rank sends to every other rank, such as an all-to-all, a receiver needs the data of
// all ranks. Small data of such an operation is sent together, when the last rank of the node has submitted its part
// (see coalescer).
//
// # Flow control
//
// A receiver has a window for each stream, and tells the sender how much of it was taken (credit). So data that arrives
// on a rail always finds room, and a rank that doesn't take its data blocks no other. Large data is read from the
// socket directly into its destination, if the rank has supplied that in time (see transport.Placer), and all other
// data into a ring.
//
// # Tokens
//
// An operation that another rank sends carries the identity of its owner as a [Token]: communicator, rank, process and
// a random generation. The token is checked when the operation enters the carrier's process, and when it arrives at the
// other node. An operation with a wrong token is refused and counted, and its data is dropped. Pointers never leave
// their process.
//
// # Losses
//
// A rank is reported as lost only after all data that it sent has arrived. A broken connection ends the streams that it
// carries, with an error that names the rank at its other end. If a rank of the node dies, its carriers tell the peers
// of its streams.
package proxy
