// Package tcp connects ranks of different hosts.
//
// A pair of ranks has two TCP connections:
//
//	data     the stream of bytes, raw, without any framing unless it is protected
//	control  notices, the goodbye, and that a rank is connected with all; what keeps watch over the peer
//
// Two, because they need opposite things. Data may stand still for minutes with a full window while its reader
// computes, and a notice must overtake it. The control connection is nearly always silent and always read, so keepalive
// probes and a user timeout on it tell a cut cable within Config.Keepalive, without ever taking a busy peer for a lost
// one.
//
// Receiving is the work of a goroutine, which reads ahead into the memory of its User: bytes are moved out of the
// kernel on a core of their own. A caller that waits can Poll, and has what is small before that goroutine has woken.
// Sending writes straight from the caller's memory, without blocking, in the caller's goroutine.
//
// How a peer's end is known:
//
//	goodbye, then the end of data     it closed the connection in order
//	notice                            it gave up, and says why
//	control ends without a goodbye    its kernel closed the connection: the process ended (rank_dead)
//	no answer to probes, no route     its host or the network is gone (unreachable)
//
// Both connections come in through package door's Door, where the two ends prove to each other that they have the
// communicator's secret before anything else is believed. A Listener serves all communicators of a process.
//
// On a connection that is protected (see package door) both streams are records. The sender seals up to 64 KiB into a
// buffer of its own, from which they go out: then they count as sent, and what a full kernel does not take, a goroutine
// writes when there is room. The reader opens a record before its User gets any of it. One that is forged ends the
// connection as unreachable.
package tcp
