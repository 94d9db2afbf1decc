// Package native runs NCCL's profiler plug-ins, which are written in C, of versions 1 to 7 of the interface: New makes
// a profiler.Plugin from a library.
//
// runtime/attach, in which NCCL itself calls plug-ins, uses the same headers: profiler_abi.h has each version's
// structures and the conversions of events. A test of package profiler generates it from nccl-profiler-abi.tsv, and it
// does not compile if an offset differs. profiler_plugin.h calls a plug-in in the newest version that the plug-in has.
//
// All calls come from one thread. A parent is always a handle that the plug-in returned for the same communicator. A
// plug-in that crashes ends the process, as all C code does.
package native
