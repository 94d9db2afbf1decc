// Package algo plans collectives: from what is asked (which call, how many elements, how many ranks) and an algorithm
// it makes the list of steps that one rank has to carry out. It is pure: no I/O, no memory of the user, no clock.
// What runs the steps is an engine.
//
// A plan is a small dataflow graph. Its edges are of two kinds, and they are all the synchronisation there is:
//
//	Step.After  a stream: element k of this step needs element k of that step
//	Step.Wait   a barrier: this step needs the whole of those steps
//
// Because dependencies are streams, a plan has as many steps as the algorithm has messages, however large the
// messages are, and it is pipelined all the same: a rank in the middle of a chain passes on the first kilobytes while
// the last ones are still far away.
//
//	rank 1 of a ring of 3, all-reduce:
//
//	  send 2 ← In[1]
//	  recv-reduce 0 → Out[0]  ──After──▸  send 2 ← Out[0]
//	  recv-reduce 0 → Out[2]  ──After──▸  send 2 ← Out[2]
//	  recv 0 → Out[1] (After: the send of In[1], which may be the same memory)  ──After──▸  send 2 ← Out[1]
//	  recv 0 → Out[0] (After: the send of Out[0])
//
// Ranks that can post what all others read ([Request].Board) have plans in which nothing is sent: local steps read the
// posts of round 0, which are every rank's In, and those of a later round when they are there.
//
// Plans hold without any buffering in between: a send may last until the peer has received every byte of it. And they
// hold in place: where In and Out share memory (see [Plan]), every step that overwrites what another step still has to
// read is ordered behind it by an edge. The tests check both.
package algo
