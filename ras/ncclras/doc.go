// Package ncclras is a client of NCCL's own RAS, the socket at which a job's NCCL processes tell of each other. It is
// for what the tapes don't tell: processes on hosts without Carillon.
//
//	Config.Version ─▶ bugs ─▶ may it be asked? ─▶ Client ─┬─▶ Status   which ranks answer, and what they launched
//	Config.Quiet  ───────────────────────────────▲        └─▶ Monitor  who came, fell silent, is considered dead
//	Config.Dir    ── one connection a node ──────┘                 │
//	                                                View ◀─────────┘──▶ verdict.Note
//
// Asking has crashed jobs, so the rules come before the questions. All of them hold for each connection:
//
//   - A version of NCCL that is known to crash when it is asked isn't asked: see Bugs.
//   - Nothing is asked while communicators are made or ended, which Config.Quiet tells. It can't know of what begins a
//     moment later.
//   - A node has one connection: that of the process that holds the lock on the job's folder.
//   - What changes something in the job (CONTROL) is never sent.
//   - The answer is foreign: it is read up to a size and a time, counts in it are compared and never relied on, and a
//     communicator that can't be one is left out.
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
// All processes of a node listen at one port (SO_REUSEPORT), so any of them answers, or none if the kernel picks one
// that is stopped: then the client tries again. Versions before 2.28.7 have a status as text alone, which names only
// the ranks that are not like most: they aren't asked.
//
// # What it can't tell
//
// A process that doesn't answer NCCL may be stopped, cut off or dead: NCCL calls it dead after a minute. It may also
// have ended in order, so that it is told only while a rank with a tape waits for too long in a communicator with it.
// There is no news of a job before its first communicator is up, of send and receive, or of operations replayed by CUDA
// graphs; and a hang in which all have launched the operation looks healthy.
package ncclras
