// Package rendezvous lets the ranks of a communicator find each other.
//
// The ranks of a job start at different moments, on different hosts, and know of each other only a number (their rank)
// and a shared secret (the communicator's unique id). A rendezvous is the place where each of them leaves one small
// message, its card, and waits until it can take away the cards of all:
//
//	rank 0 ── card 0 ──▶┐             ┌──▶ [card 0, card 1, card 2]
//	rank 1 ── card 1 ──▶│  the roll   │──▶ [card 0, card 1, card 2]
//	rank 2 ── card 2 ──▶┘             └──▶ [card 0, card 1, card 2]
//
// A job that hangs usually hangs here, because some rank never came. So the one idea of this package is the roll call:
// a rendezvous always knows which ranks are there, which are not, which were and left, and it says so by name. The
// answer to an exchange that cannot complete is a [MissingError], a [ConflictError] or a [StaleError] on every rank
// that takes part, as early as it can be known: when a process dies, gives up, or comes with a number that is taken,
// nobody waits for a timeout to hear of it.
//
// [Rendezvous] has three implementations: package mem for the ranks of one process, package tcp for those of several,
// in which rank 0 serves, and package etcd where they share an etcd. Package rendezvoustest has what all must do.
// Package launch reads from the environment of torchrun, Slurm, Open MPI and others which rank this process is and
// where it meets the rest.
package rendezvous
