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
// Some calls only launch an operation, and its completion is not reported (Slot.Unproven), or the program has not asked
// NCCL whether it is launched. A rank counts as in such a call while no rank can have completed it, because others have
// begun fewer. The rank can still make other calls, so it is in no deadlock.
//
// A call of another goroutine doesn't keep a rank from coming to a meeting if its program has gone through whole steps,
// with calls on the meeting's communicator, while such a call lasted (Slot.Aside).
//
// The messages of a group progress together, so that no call tells which of them its rank waits for. The counts of
// messages do (Slot.Counted): the rank waits for the peers that have called for fewer. In a cycle, they show whose
// message is the first one between two ranks, and who left one out of a group. A rank that has called for an operation
// and not launched it, where others have, has a group open: unfinished_group.
//
// While a program has a group open, none of the calls in it are made (OpenAct.Unended). A rank that does not come to a
// meeting because of this is the cause, whatever it goes on to, unless that waits for a rank that does not wait for it:
// unfinished_group, too. So is a rank whose other calls on the communicator don't match meanwhile. If no rank waits for
// the calls in a group, and nothing else is wrong, a group that is open for longer than the threshold was possibly
// forgotten.
//
// If all ranks have called for their messages, the sizes must be the same on both sides: mismatch, if a rank does not
// complete a message for which its peer has given another size.
//
// A device performs the launches on a communicator in their order. The ranks' trails (Habit.Trail) have the order, and
// which operations were launched in one group, so that launches.go can simulate how far the devices get: a rank waits
// for a peer that has launched its message behind an operation which can't complete. No rank gets past a collective
// that needs all ranks if these have made different calls under its number, unless its device is known to have
// completed it (Slot.Proven): operations launched behind it hide no mismatch.
//
// Trouble that follows an error has the error's cause: a rank that goes on after an error is out of step, and the
// meetings that it then comes to get no verdict of their own. A rank that cancels its call before the call has stalled
// is the cause; the other ranks would have come.
//
// An actor that made or ended a call a short while ago, on any communicator, is moving: a rank that is merely late gets
// no verdict. All times are ages measured by the process itself, so clocks need not agree.
//
// # Stragglers
//
// One rank may slow down a job that goes on. Where ranks measure how long they wait, the straggler is the rank that the
// others wait for most of the time. In NCCL's jobs, samples of the devices tell how long each device is in collectives
// that it has come to (Slot.Stay): the rank with the shortest stay is the one that comes last. A straggler's delay is a
// hang only when it is twice as long as usual.
package verdict
