// Package agent is RAS in one process: it answers the other processes with this process's note, and in one process of
// the job it collects the notes of all and finds out what holds the job up.
//
//	tape ─▶ model ─▶ Note ──────────────┐           one of the job's agents:
//	  └ stalls, failures ─▶ Trouble ────┼─ mesh ─▶ AskNotes ─▶ Notes ─▶ verdict.Diagnose ─▶ verdict.Tracker
//	mesh: deaths, stops ─▶ Membership ──┘                                                        │
//	                                           every agent ◀─ mesh ─ Broadcast ◀─────────────────┘
//	                                               └──▶ Config.Event, Config.Open
//
// A Machine decides; an Agent connects it to the mesh, the tape and the bus. The machine has one record for each
// member, whose phase (speaking, silent, stopped, unreachable, dead, left, retired …) changes by one table of
// transitions; everything else follows from the phases, the notes and the open verdicts.
//
// The process with the lowest rank among those that answer is the coordinator. There is no election: all see the same
// membership, and where they don't, for a moment or because the network is partitioned, there are several coordinators.
// The coordinator asks for notes when it hears that something stalls, failed, died or stopped, and then every one to
// five seconds until no verdict is open. In a healthy job no process asks.
//
// The coordinator also reads what the launcher of its host has recorded, which no process can tell: that the job is
// told to end, so that ends of its processes are no news, and which ranks ended before they met the others.
//
// All agents know the open verdicts, so that any process's health endpoint shows them and the next coordinator
// continues with them. Only the coordinator notifies receivers outside of the job: one message for each cause.
//
// If the network is partitioned, each side reports the other as unreachable, and withdraws that by itself: neither
// knows whether the other one reports anything.
//
// A verdict that no longer holds is withdrawn, as resolved or, if the ranks that waited gave up, as unresolved. A
// verdict that can't be judged, as some of its processes don't answer, stays open.
//
// For a process that is dead, stopped or has ended, another process of its host answers from its tape.
//
// The command carillon agent watches processes that are no members of the mesh, those of Config.Kept, and is not part
// of the job itself. It sends the other such agents a list of these processes with their states, and answers with the
// notes of all. When it is gone, its processes count as unreachable, and never as dead.
package agent
