// Package rendezvous lets the ranks of a communicator find each other.
//
// The ranks of a job start at different times, on different hosts, and know only their rank and a shared secret, the
// communicator's unique id. At a rendezvous each rank leaves one small message, its card, and waits until it gets the
// cards of all ranks:
//
//	rank 0 ── card 0 ──▶┐             ┌──▶ [card 0, card 1, card 2]
//	rank 1 ── card 1 ──▶│  the roll   │──▶ [card 0, card 1, card 2]
//	rank 2 ── card 2 ──▶┘             └──▶ [card 0, card 1, card 2]
//
// A job that hangs usually hangs here, because some rank never came. So a rendezvous keeps a roll: which ranks are
// present, which have not come, and which have left. If an exchange cannot complete, every rank that takes part gets a
// [MissingError], a [ConflictError] or a [StaleError] as early as possible: if a process dies, gives up, or claims a
// rank that is taken, no rank waits for a timeout.
//
// [Rendezvous] has three implementations: package mem for the ranks of one process, package tcp for several processes,
// with rank 0's as the server, and package etcd for ranks that share an etcd. Package rendezvoustest has tests that all
// three must pass. Package launch reads from the environment of torchrun, Slurm, Open MPI and others which rank this
// process is and where it meets the others.
package rendezvous
