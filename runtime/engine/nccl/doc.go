// Package nccl is an engine for the memory of NVIDIA's GPUs that runs NCCL, for communicators that package engine/cuda
// can't carry: over several hosts, with more than 8 ranks, or on GPUs that share no memory. Use it as the Fallback of
// engine/cuda, or by itself.
//
//	GPU     a device of this process
//	  │ Open, on all ranks: rank 0 makes NCCL's unique id, and tells the others
//	  ▼
//	device  an NCCL communicator: puts calls on streams, and behind each a write of its number onto the tape's page
//
// NCCL is the one that package runtime/nccl finds. Its communicators are non-blocking, so that a rank that waits in
// NCCL for another one can leave. NCCL_COMM_BLOCKING=1 makes calls return sooner, and then nothing ends the making of a
// communicator while a rank is missing.
//
// What it doesn't tell is for which rank an operation waits, and that ranks have made different calls: NCCL hangs then.
package nccl
