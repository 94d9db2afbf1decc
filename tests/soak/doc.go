// Package soak watches a healthy job on a machine that has far too much to do: RAS must not say a word.
//
//	busy process ─┐ four for each core, that do nothing but compute,
//	busy process ─┤ and have the same priority
//	      …       │
//	rank ─────────┤ a job that computes, too, reduces over two communicators, checks the sums, and makes and
//	rank ─────────┘ destroys a third one now and then
//	  └── /api/v1/events of every rank ──▶ the test: whatever is told, but that ranks join, is wrong
//
// Each process waits for a core again and again, and every timeout of the membership runs meanwhile; nobody is dead. In
// make e2e it takes some seconds. For as long as one likes:
//
//	make soak SOAK=1h
//
// That the test hears what is told is tested, too: on a rank that is stopped.
package soak
