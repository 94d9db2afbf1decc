// Package nccl is an engine for the memory of NVIDIA's GPUs that runs NCCL, for communicators that package engine/cuda
// can't carry: over several hosts, with more than 8 ranks, or on GPUs that share no memory. Use it as the Fallback of
// engine/cuda, or by itself.
//
//	GPU     a device of this process
//	  │ Open, on all ranks: rank 0 makes NCCL's unique id, and tells the others
//	  ▼
//	device  an NCCL communicator: puts calls on streams, and behind each a write of its number onto the tape's page
//
// Package runtime/nccl finds the library. NCCL's communicators are non-blocking, so that a rank that waits in NCCL for
// another one can leave. NCCL_COMM_BLOCKING=1 makes calls return sooner, but then nothing ends the creation of a
// communicator while a rank is missing.
//
// NCCL doesn't tell which rank an operation waits for, nor that ranks have made different calls: it hangs then.
package nccl
