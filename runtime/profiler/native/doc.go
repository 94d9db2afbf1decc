// Package native runs NCCL's profiler plug-ins, which are written in C, of versions 1 to 7 of the interface: New makes
// a profiler.Plugin of a library.
//
// The same headers serve runtime/attach, in which NCCL itself tells the plug-ins: profiler_abi.h has each version's
// structures and what turns events into them; it is generated from nccl-profiler-abi.tsv, and does not compile if an
// offset differs. profiler_plugin.h calls a plug-in in the newest version that it has.
//
// All calls come from one thread. What a plug-in is given as a parent is a handle that it returned itself, for the same
// communicator. A plug-in that crashes takes the process with it, as anything in C does.
package native

//go:generate go run ./internal/profilerabi nccl-profiler-abi.tsv profiler_abi.h
