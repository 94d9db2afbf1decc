// Package cuda is the CUDA driver API as Go, as far as collectives on GPUs need it: devices, contexts, memory and its
// sharing, streams, events, kernels and graphs. It knows nothing of collectives, and needs no toolkit.
//
//	Open ──▶ Driver ──▶ Device ──▶ Context ──┬──▶ Pointer    memory: plain, registered, shared
//	                                         ├──▶ Shareable  memory to be mapped by other processes
//	                                         ├──▶ Stream     ──▶ Graph ──▶ Executable
//	                                         ├──▶ Event
//	                                         └──▶ Module     ──▶ Function
//
// The library, libcuda.so.1, comes with NVIDIA's driver and is looked for when a program runs. Its functions are found
// by dlsym under the names of their versions (cuMemAlloc_v2), which stay what they are; one that an older driver lacks
// fails with [ErrNotSupported] where it is called. Where the package can't load a library, on other systems than Linux
// and in programs built without cgo, there is [Open] alone, which says so, and the errors.
//
// # Threads and contexts
//
// A context is the primary one of its device, which PyTorch, cuBLAS and every program on CUDA's runtime use, too. A
// call makes it current on the thread that it happens to run on. If another one was current there, that is so again
// when the call returns; if there was none, ours stays. Everything may be called from any goroutine, and of several at
// once.
//
// A call costs what cgo costs beyond what the driver's function does, 40 to 60 ns, and one function that asks for the
// thread's context. Calls that put work on a stream allocate nothing.
//
// # Errors
//
// Each error of the driver is an [Error] with its code, name and text, and errors.Is compares it with a [Code].
// [ErrContextLost] is every code after which a context is of no more use, such as an illegal address in a kernel. The
// driver tells of a kernel's error at a later call, whichever comes first.
//
// The reference is NVIDIA's: https://docs.nvidia.com/cuda/cuda-driver-api/.
package cuda
