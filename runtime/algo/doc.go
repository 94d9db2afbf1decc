// Package algo plans collectives: from a request (the call, the number of elements and of ranks) and an algorithm, it
// makes one rank's list of steps, which an engine runs. It is pure: no I/O, no access to user memory, no clock.
//
// A plan is a small dataflow graph. All synchronization is in its edges, of which there are two kinds:
//
//	Step.After  a stream: element k of this step needs element k of that step
//	Step.Wait   a barrier: this step needs the whole of those steps
//
// As dependencies are streams, a plan is pipelined although it has only one step for each message of the algorithm: a
// rank in the middle of a chain passes on the first kilobytes of a message before the last ones have arrived.
//
//	rank 1 of a ring of 3, all-reduce:
//
//	  send 2 ← In[1]
//	  recv-reduce 0 → Out[0]  ──After──▸  send 2 ← Out[0]
//	  recv-reduce 0 → Out[2]  ──After──▸  send 2 ← Out[2]
//	  recv 0 → Out[1] (After: the send of In[1], which may be the same memory)  ──After──▸  send 2 ← Out[1]
//	  recv 0 → Out[0] (After: the send of Out[0])
//
// Ranks that can post data for all others ([Request].Board) have plans without messages: local steps read the posts of
// round 0, which are every rank's In, and those of a later round once they are posted.
//
// Plans need no buffering: a send may last until the peer has received all of it. Plans also work in place: where In
// and Out share memory (see [Plan]), an edge orders every step that overwrites data after the steps that read it. The
// tests check both.
package algo
