// Package verdict says what holds a job up and which rank is at fault. It is a pure function from the notes of all
// processes to a few sentences: no clock, no I/O, no memory.
//
//	Note     the state of one process: its own answer, or what others know of it
//	Diagnose notes → verdicts: one for each cause, with all ranks that wait for it
//	Tracker  successive verdicts → which opened, changed or are withdrawn
//
// # The wait-for graph
//
// A meeting is one collective (a communicator and a number), one message between two ranks, or the init or the end of
// one communicator. An actor is one rank with all its communicators. A meeting waits for the actors that have not come
// to it; an actor waits for the meetings that it is in. The rank that others wait for often waits itself, in another
// communicator, so the graph is followed to where it ends:
//
//	world #41 ──▶ rank 3 ──▶ tp1 #7 ──▶ rank 2 ──▶ pp #9 ──▶ rank 6       rank 6 waits for nothing: it is the cause
//
//	it ends at                                        verdict
//	an actor whose process is gone or stopped         rank_dead, rank_stopped, rank_unreachable
//	an actor that is alive and in no meeting, or in   not_entered; not_joined if it is missing at an init or a split;
//	  an init or a split that others have completed   unfinished_group if it has a group job open;
//	                                                  stream_blocked if its device has not come to the call
//	a meeting whose ranks made different calls        mismatch
//	a meeting to which all have come, and nothing     transport
//	  moves
//	itself                                            deadlock
//	a rank without a note                             unknown, with what is missing; never a guess
//
// If a call only launches an operation, and its completion is not reported (Slot.Unproven), or nobody has asked NCCL
// whether it is launched, the rank counts as in it while no rank can have completed it: others have begun fewer. It can
// still make other calls, so it is in no deadlock.
//
// A call of another goroutine doesn't keep a rank from coming to a meeting if its program has gone on for whole steps
// while such a call lasted (Slot.Aside).
//
// A device does the messages of a group together, so that no call tells which of them its rank waits for. The counts of
// messages do (Slot.Counted): it waits for the ranks that have called for fewer. A rank that has called for something
// and not launched it, where others have, has a group open: unfinished_group.
//
// The calls of a group that a program has opened and not ended are made nowhere (OpenAct.Unended): a rank that does not
// come to a meeting because of it is the cause, whatever it goes on to, unless that waits for somebody who does not
// wait for it: unfinished_group, too. If nobody waits for them, and nothing else is wrong, a group that is open for
// longer than the threshold is possibly one that was forgotten.
//
// Of messages that all have called for, the sizes must be the same on both sides: mismatch, if a rank does not come out
// of one of which the other rank has called for another size.
//
// A device does what was launched on a communicator in that order. The ranks' trails (Habit.Trail) have the order, and
// what was launched in one group, so that it can be simulated how far the devices come with it (launches.go): a rank
// whose message another one has launched behind something that can't be done waits for that one. No rank gets past a
// collective that needs all ranks where these have made different ones of its number, unless its device is known to
// have done it (Slot.Proven): what was launched behind it hides no mismatch.
//
// What follows an error has the error's cause: a rank that goes on after it is out of step, and whatever it comes to
// then is no verdict of its own. A rank that cancels its call before the call has stalled is the cause; the others
// would have come.
//
// An actor that made or ended a call a short while ago, on any communicator, is moving: a rank that is merely late gets
// no verdict. All times are ages measured by the process itself, so clocks need not agree.
//
// # Stragglers
//
// A job that goes on may be slow by one rank. Where ranks measure how long they wait, a straggler is the rank that the
// others wait for most of the time. Of NCCL's jobs, looks at the devices tell for how long each one is in collectives
// that it has come to (Slot.Stay): the rank that is there for the shortest is the one that comes last.
package verdict
