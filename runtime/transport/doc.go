// Package transport defines how bytes move between two ranks, and how a rank waits for them.
//
// A [Conn] is one rank's end of a connection to one peer. It never blocks. All connections of a rank in one
// communicator share one [Waiter]: an event that gives the rank work (bytes, room, the loss of a peer) rings it, and a
// rank that can't make progress idles on it.
//
//	rank 0                                         rank 1
//	engine ── TrySend ──► Conn ═══ bytes ═══► Conn ── Peek, Release ──► engine
//	   ▲                   ▲                    │                          ▲
//	   └─ Waiter ◄─ Ring ──┴──── room, loss ────┴── Ring ─► Waiter ────────┘
//
// The packages below implement Conn: inproc (ranks of one process, straight memory), shm (processes of one host,
// rings in shared memory) and tcp (between hosts). Package fabric chooses among them and connects a communicator.
// All of them pass one conformance suite, which is with the fabric's tests.
//
// If all ranks share memory, they also have a [Board], on which each rank posts data that all others read.
//
// Three ways a connection ends, and what the other side sees:
//
//   - Close is orderly. The peer still reads what was sent before; then its Peek, and its TrySend, return a
//     *NoticeError with CodePeerAborted. No failure is reported to its Waiter, since a rank that has done its part may
//     leave while the others still finish among themselves.
//   - Notify, the end of the peer's process, and a broken connection are losses: PeerLost reports them to the Waiter,
//     and a rank that waits for anything in the communicator sees them through FirstLost.
package transport
