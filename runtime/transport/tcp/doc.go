// Package tcp connects ranks of different hosts.
//
// A pair of ranks has two TCP connections:
//
//	data     the stream of bytes, raw, without any framing unless it is protected
//	control  notices, the goodbye, and that a rank is connected with all; what keeps watch over the peer
//
// They are separate because they have opposite needs. Data may stand still for minutes with a full window while its
// reader computes, and a notice must overtake it. The control connection is nearly always silent and always read, so
// keepalive probes and a user timeout on it detect a cut cable within Config.Keepalive, and never mistake a busy peer
// for a lost one.
//
// A goroutine receives: it reads ahead into the memory of its User, so that bytes are moved out of the kernel on
// another core. A caller that waits can Poll, and gets small data before that goroutine has woken. Sending writes
// straight from the caller's memory, without blocking, in the caller's goroutine.
//
// How the end of a peer is detected:
//
//	goodbye, then the end of data     it closed the connection in order
//	notice                            it gave up, and says why
//	control ends without a goodbye    its kernel closed the connection: the process ended (rank_dead)
//	no answer to probes, no route     its host or the network is gone (unreachable)
//
// Both connections arrive at package door's Door, where the two ends first prove to each other that they have the
// communicator's secret. A Listener serves all communicators of a process.
//
// On a protected connection (see package door), both streams consist of records. The sender seals up to 64 KiB into a
// buffer of its own. The sealed bytes count as sent; those that a full kernel buffer does not take are written by a
// goroutine when there is room. The reader opens a record before its User gets any of it. A forged record ends the
// connection as unreachable.
package tcp
