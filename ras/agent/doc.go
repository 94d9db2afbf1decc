// Package agent is RAS in one process: it tells the others what this process is in, and in one process of the job it
// finds out, from what all tell, what holds the job up.
//
//	tape ─▶ model ─▶ Note ──────────────┐           one of the job's agents:
//	  └ stalls, failures ─▶ Trouble ────┼─ mesh ─▶ AskNotes ─▶ Notes ─▶ verdict.Diagnose ─▶ verdict.Tracker
//	mesh: deaths, stops ─▶ Membership ──┘                                                        │
//	                                           every agent ◀─ mesh ─ Broadcast ◀─────────────────┘
//	                                               └──▶ Config.Event, Config.Open
//
// A Machine decides; an Agent connects it to the mesh, the tape and the bus. The machine has one record for each
// member, whose phase (speaking, silent, stopped, unreachable, dead, left, retired …) changes by one table of
// transitions; all else that it does follows from the phases, the notes and what is open.
//
// The process with the lowest rank among those that answer coordinates. Nobody elects it: all see the same membership,
// and where they don't, for a moment or because the network is parted, several coordinate. It asks when it is told that
// something stalls, failed, died or stopped, and again and again, a second to five seconds apart, until nothing is
// open. A job in which all is well asks nobody anything.
//
// All agents know the open verdicts, so that any process's health endpoint shows them, and so that the next coordinator
// goes on where the last one ended. Only the coordinator tells receivers outside of the job: one cause is one message
// to the person on call.
//
// Where the network is parted each side tells that the others are out of reach, and withdraws that by itself: neither
// can know whether the other one tells.
//
// A verdict that holds no longer is withdrawn: because it healed, or unresolved, because the ranks that waited gave up,
// of which the person on call must hear, too. One that can't be judged, as processes that it is about don't answer,
// stays open.
//
// For a process that can't answer, because it is dead, stopped or has ended, another one of its host answers from its
// tape.
//
// A process of carillon agent's tells of others, those of Config.Kept, and is none of the job's. It is the member of
// the mesh, and they are not: it tells the other such agents which they are and what became of them (a list), and
// answers with the notes of all. When it is gone, they count as processes that give none, and never as dead.
package agent
