// Package attach builds and tests libcarillon-nccl.so, the part of Carillon that is inside an unmodified process on
// NCCL. It is written in C, in this folder, and there is no Go in that process. What the process does is on its tape
// (package tape), which other processes read:
//
//	process on NCCL                               any other process
//	┌──────────────────────────────────────────┐  ┌───────────────────────────────┐
//	│ program ─▶ libcarillon-nccl.so ─▶ NCCL   │  │ tape.Follower, tape.Reader ─▶ │
//	│                 │                        │  │ spans, metrics, verdicts, …   │
//	└─────────────────┼────────────────────────┘  └──────▲────────────────────────┘
//	                  └──▶ DIR/JOB/HOST-PID.tape ────────┘
//
// make build builds it into bin/, with gcc or clang (make CC=clang). It needs libc alone, starts no thread, stays in
// the process when it is unloaded, and shows only the symbols of NCCL that it interposes and those of the profiler
// plug-in.
//
// # The writer of the tape
//
// tape.h is what the rest of the library calls; it says what is for which thread, and what belongs to whom. It mirrors
// tape.Writer and tape.CommWriter, with the numbers of tape_layout.h, which is generated from package tape (make
// generate). Both writers play the scripts of package tapetest, and readers can't tell their tapes apart.
//
// A start and an end of an operation take no lock and no memory, and make no system call but, for each quarter of the
// op ring, one that wakes followers that sleep. In a forked child nothing is written. If no tape can be made, one line
// on stderr says why, and everything else is as without it.
//
// The tape is in CARILLON_TAPE_DIR, or else in /dev/shm/carillon-UID, in the folder of the job, CARILLON_JOB, which is
// "default" if it is not set. It takes an eighth of what is free there at most. Unlike a tape that Go writes, it has no
// other place to go, nobody who removes those of older jobs, and no handler for SIGBUS: a tape that somebody truncates
// ends the process that writes it.
//
// # What is proof, and what inference
//
// An operation of NCCL is on the tape from the entry of its call to the call's return, which is when it is enqueued on
// its stream. That the GPU has done it is not on the tape.
package attach
