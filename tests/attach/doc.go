// Package attach tests carillon agent and carillon attach on jobs whose processes have no telemetry of their own.
//
// In some tests the ranks are ordinary programs on Carillon's own engine, with all of it switched off: what they write
// on their tapes is what any writer of tapes does. In the others they are programs on package fakenccl's NCCL, in C and
// in Python, with libcarillon-nccl.so.
package attach
