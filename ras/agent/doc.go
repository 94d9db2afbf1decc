// Package agent is RAS in one process: it tells the others what this process is in, and in one process of the job it
// finds out, from what all tell, what holds the job up.
//
//	tape ──▶ notebook ──▶ Note ─────────────────┐            one of the job's agents:
//	  └ stalls, failures ──▶ "look at the job" ─┼─mesh─▶ ask all for notes ─▶ verdict.Diagnose ─▶ verdict.Tracker
//	mesh: deaths, stops, resumptions ───────────┘                                                      │
//	                                                       every agent ◀─mesh── open verdicts ◀────────┘
//	                                                           └──▶ Config.Event, Config.Open
//
// The process with the lowest rank among those that answer coordinates. Nobody elects it: all see the same membership,
// and where they don't, for a moment or because the network is parted, several coordinate. It asks when it is told that
// something stalls, failed, died or stopped, and again and again, a second to five seconds apart, until nothing is open.
// A job in which all is well asks nobody anything.
//
// All agents know the open verdicts, so that any process's health endpoint shows them, and so that the next coordinator
// goes on where the last one ended. Only the coordinator's events are Outward: one cause is one message to whoever is on
// call. Verdicts have no bus.Event.Cause: the symptoms of one cause are one verdict already. A communicator that fails because
// of an open one is a symptom.
//
// Where the network is parted each side tells, for neither can know whether the other one can: that the others are out of
// reach, from which hosts that is seen, and how many processes are left there. It is one message a side, also from a host
// that is cut off from all others. There is no key that both have, as neither knows how the other one sees it, and each side
// withdraws its own.
//
// A verdict that holds no longer is withdrawn: because it healed, or unresolved, because those who waited gave up, as a job
// that ends with its crash does. Whoever is on call must hear of that one, too.
//
// A process that can't speak, because it is dead or stopped, is spoken for by another one of its host, from its tape.
// A process that ended, or is out of reach, is left out of the notes, and its verdict withdrawn, once no living process is
// in any communicator that it was in: the others have gone on without it. That the membership forgets one that is out of
// reach withdraws its verdict, too, but as unresolved.
package agent
