// Package nccl is NCCL's C API as Go, as far as an engine on it needs it: communicators, collectives, messages, and how
// they end. The library, libnccl.so.2, is opened when a program asks for it; versions from 2.18.1 on have all that is
// needed, and no headers are.
//
//	Open ──▶ Library ──▶ ID, which all ranks get from one of them
//	            │
//	            └──▶ Init ──▶ Comm ──▶ Run, on streams
//
// Communicators are non-blocking, so that [Comm.Abort] ends what waits for other ranks: after a call of Init, Run or
// Finalize, [Comm.Ready] answers [ErrInProgress] until it is done. Each error of NCCL is an [Error] with its text.
//
// The reference is NVIDIA's: https://docs.nvidia.com/deeplearning/nccl/.
package nccl
