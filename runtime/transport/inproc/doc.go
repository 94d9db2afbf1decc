// Package inproc connects two ranks of one process. It moves bytes by plain memory accesses and makes no system call.
//
// Each direction has two paths, and the stream is their concatenation:
//
//	small  sender ── copy ──► ring ── window ──► receiver     the sender goes on at once
//	large  sender's memory ───── window ───────► receiver     nothing is copied; the sender's bytes count
//	                                                          as sent when the receiver releases them
//
// While a large message is lent, its sender adds nothing to the ring, so the receiver first reads the ring, then the
// lent message.
//
// A lent window is another rank's memory, so its reader sets a mark from Peek to Release. Close revokes the loan and
// then waits until the mark is cleared. Release, the next Peek and idling of the rank clear it. Reading a piece takes
// microseconds; if a reader never returns, Close gives up waiting after a quarter of a second.
package inproc
