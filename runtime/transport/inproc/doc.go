// Package inproc connects two ranks of one process. It moves bytes with straight memory accesses and makes no system
// call.
//
// Each direction has two ways, and the stream is their concatenation:
//
//	small  sender ── copy ──► ring ── window ──► receiver     the sender goes on at once
//	large  sender's memory ───── window ───────► receiver     nothing is copied; the sender's bytes count
//	                                                          as sent when the receiver releases them
//
// While a large message is lent, its sender adds nothing to the ring, so the receiver's order is: what is in the ring,
// then what is lent.
//
// A lent window is another rank's memory, so its reader marks itself for the time from Peek to Release. Close revokes
// the loan and then waits for the mark to go. The mark goes with Release, with the next Peek, and when the rank idles;
// a piece is read in microseconds, and should a reader never come back, Close gives up waiting after a quarter of a
// second.
package inproc
