// Package soak watches a healthy job on a heavily overloaded machine: RAS must report nothing.
//
//	busy process ─┐ four for each core, that do nothing but compute,
//	busy process ─┤ and have the same priority
//	      …       │
//	rank ─────────┤ a job that computes, too, reduces over two communicators, checks the sums, and makes and
//	rank ─────────┘ destroys a third one now and then
//	  └── /api/v1/events of every rank ──▶ the test: whatever is told, but that ranks join, is wrong
//
// Each process repeatedly waits for a core, while every timeout of the membership runs; no process is dead. In make e2e
// this takes some seconds. To run it longer:
//
//	make soak SOAK=1h
//
// Another test checks that reports would be noticed: it stops a rank.
package soak
