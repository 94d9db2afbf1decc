// Package ncclras is a client of NCCL's own RAS, the socket at which a job's NCCL processes report each other's state.
// It is for processes without a tape, on hosts without Carillon.
//
//	Config.Version ─▶ bugs ─▶ may it be asked? ─▶ Client ─┬─▶ Status   which ranks answer, and what they launched
//	Config.Quiet  ───────────────────────────────▲        └─▶ Monitor  who came, fell silent, is considered dead
//	Config.Dir    ── one connection a node ──────┘                 │
//	                                                View ◀─────────┘──▶ verdict.Note
//
// Asking has crashed jobs, so the rules come before the questions. All of them hold for each connection:
//
//   - A version of NCCL that is known to crash when asked isn't asked: see Bugs.
//   - Nothing is asked while communicators are being created or destroyed, by Config.Quiet. It can't know what begins a
//     moment later.
//   - A node has one connection: that of the process that holds the lock on the job's folder.
//   - Commands that change something in the job (CONTROL) are never sent.
//   - Answers aren't trusted: they are bounded in size and time, their counts are checked and never relied on, and
//     impossible communicators are left out.
//
// # The protocol
//
// Lines over TCP, at localhost:28028 or NCCL_RAS_ADDR, since NCCL 2.24.3 (src/ras/client_support.cc in NVIDIA/nccl, and
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html):
//
//	CLIENT PROTOCOL 2          SERVER PROTOCOL n
//	TIMEOUT seconds            OK
//	SET FORMAT json            OK                           since 2.28.7
//	STATUS                     a JSON object, then the end of the connection
//	MONITOR lifecycle,trace    OK, then an event at a time  since 2.29.2
//
// All processes of a node listen at one port (SO_REUSEPORT), so any of them answers, or none if the kernel picks a
// stopped one: then the client tries again. Versions before 2.28.7 have only a status as text, which names only
// outliers among the ranks: they aren't asked.
//
// # What it can't know
//
// A process that doesn't answer NCCL may be stopped, cut off or dead: NCCL calls it dead after a minute. It may also
// have ended normally, so it is reported only while a rank with a tape waits too long in a communicator with it.
// Nothing is known of a job before its first communicator is up, of send and receive, or of operations replayed by CUDA
// graphs; and a hang in which all ranks have launched the operation looks healthy.
package ncclras
