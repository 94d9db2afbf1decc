// Package fakenccl builds a libnccl.so.2 of our own, for tests of what Carillon does to programs that use NCCL, on
// machines without a GPU. To programs and tools it behaves like NCCL: its ranks, which are processes or threads, really
// wait for each other, and its arithmetic is right. Its answers, its calls of profiler plug-ins and its faults are
// those of the NCCL version that it reports.
//
//	program ── ncclAllReduce ──▶ libnccl.so.2 ── cudaLaunchHostFunc ──▶ libcudart.so.12: a queue a stream
//	                                  │                                        │
//	                                  └── profiler plug-in                     └── memory that the ranks share
//
// Each version is a library of its own ([Build]; make VERSION=2.28.9 in this folder), which exports exactly the
// functions of that version, with their pnccl twins. libcudart.so.12, beside it, has the part of CUDA's runtime that
// programs need, under CUDA's names: streams with a thread each, events, and device memory that is host memory. A
// program, or Python with ctypes, finds both through LD_LIBRARY_PATH.
//
// Each process has 16 devices. All operations work on all integers, float16, bfloat16, float32 and float64; float8 is
// only moved. One-sided puts arrive when the peer waits for their signals.
//
// From 2.24.3 on, each process listens on NCCL's RAS port (NCCL_RAS_ADDR, NCCL_RAS_ENABLE), and answers STATUS and,
// from 2.29.2 on, MONITOR, with only the events of the group lifecycle.
//
// The environment variables, in addition to those that NCCL itself reads (NCCL_COMM_BLOCKING, NCCL_HOSTID,
// NCCL_PROFILER_PLUGIN, NCCL_P2P_DISABLE, NCCL_PXN_DISABLE; NCCL_DEBUG set to anything shows the reason of each error):
//
//	FAKENCCL_HEAP=dirty      memory of destroyed communicators is overwritten at once
//	FAKENCCL_CONNECT=lazy    the first collective of a communicator is launched once all ranks have reached it
//	FAKENCCL_BREAKS=64       the last rank fails to run collectives of 64 bytes; the others wait for it
//	FAKENCCL_CUT=1           the network accepts what rank 1 sends, and never delivers it
//	FAKENCCL_PROXY=unpaired  proxy steps that never stop, and states recorded after a stop
//
// src/misbehave.c, src/profiler.c and src/ras.c say what goes wrong in which version, and when.
package fakenccl
