// Package verdict says what holds a job up and whose fault it is. It is a pure function from what all processes know of
// themselves to a few sentences: no clock, no I/O, no memory.
//
//	Note     what one process says of itself, or what is known of it if it can't answer
//	Diagnose notes → verdicts: one for each cause, with all ranks that wait for it
//	Tracker  verdicts of one moment after another → what opened, what changed, what is withdrawn
//
// # The wait-for graph
//
// A meeting is one collective (a communicator and a number), one message between two ranks, or one communicator's init.
// An actor is one rank with all the communicators that it is in. A meeting waits for the actors that have not come to
// it; an actor waits for the meetings that it is in. The rank that everybody blames is often itself waiting in another
// communicator, so the graph is followed to where it ends:
//
//	world #41 ──▶ rank 3 ──▶ tp1 #7 ──▶ rank 2 ──▶ pp #9 ──▶ rank 6       rank 6 waits for nothing: it is the cause
//
//	it ends at                                        verdict
//	an actor whose process ended, stopped, is away    rank_dead, rank_stopped, rank_unreachable
//	an actor that is alive and in no meeting          not_entered; not_joined if it is missing at an init or a split;
//	                                                  unfinished_group if it has one that nobody completes;
//	                                                  stream_blocked if its device has not come to the call
//	a meeting whose ranks made different calls        mismatch
//	a meeting to which all have come, and nothing     transport
//	  moves
//	itself                                            deadlock
//	a rank of which nothing is known                  unknown, with what is missing; never a guess
//
// Where a call only launches an operation, and nobody knows whether that is done (Slot.Unproven), the rank is in it if
// no rank can have done it yet: others have begun fewer. It may still make other calls, and so is in no deadlock.
//
// An actor that has come or gone a short while ago, in whatever communicator, is moving: a rank that is merely late is
// no verdict. All times are ages as their own process measured them, so clocks need not agree.
package verdict
