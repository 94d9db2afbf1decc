// Package attach tests carillon agent and carillon attach on jobs whose processes have no telemetry of their own.
//
// In some tests the ranks are ordinary programs on Carillon's own engine, with all its telemetry switched off: their
// tapes are like those of any other writer. In the other tests they are programs on package fakenccl's NCCL, in C and
// in Python, with libcarillon-nccl.so.
package attach
