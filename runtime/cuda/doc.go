// Package cuda is a Go version of the CUDA driver API, as far as collectives on GPUs need it: devices, contexts, memory
// and its sharing, streams, events, kernels and graphs. It knows nothing about collectives, and needs no toolkit.
//
//	Open ──▶ Driver ──▶ Device ──▶ Context ──┬──▶ Pointer    memory: plain, registered, shared
//	                                         ├──▶ Shareable  memory to be mapped by other processes
//	                                         ├──▶ Stream     ──▶ Graph ──▶ Executable
//	                                         ├──▶ Event
//	                                         └──▶ Module     ──▶ Function
//
// The library, libcuda.so.1, comes with NVIDIA's driver and is located when a program runs. Its functions are looked up
// with dlsym by their versioned names (cuMemAlloc_v2), which don't change; a function that an older driver lacks fails
// with [ErrNotSupported] when it is called. Where the package can't load a library, on systems other than Linux and in
// programs built without cgo, there are only [Open], which reports that, and the errors.
//
// # Threads and contexts
//
// A context is the primary context of its device, which PyTorch, cuBLAS and every program that uses CUDA's runtime
// share. A call makes it current on the thread that it happens to run on. If another context was current there, it is
// restored when the call returns; if there was none, ours stays current. Everything may be called from any goroutine,
// and from several concurrently.
//
// In addition to the driver's function, a call costs the overhead of cgo, 40 to 60 ns, and one function call that asks
// for the thread's context. Calls that put work on a stream allocate nothing.
//
// # Errors
//
// Each error of the driver is an [Error] with its code, name and text, and errors.Is compares it with a [Code].
// [ErrContextLost] matches every code after which a context is no longer usable, such as an illegal address in a
// kernel. The driver reports a kernel's error at some later call.
//
// Reference: NVIDIA's documentation, https://docs.nvidia.com/cuda/cuda-driver-api/.
package cuda
