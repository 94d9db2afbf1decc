// Package cuda is the engine for the memory of NVIDIA's GPUs: up to 8 ranks of one host, in one process or in several.
//
//	GPU      a device of this process: its kernels are loaded before a communicator begins
//	  │ Open, on all ranks
//	  ▼
//	window   of each rank, memory that all ranks reach: a mailbox for packets, and slots of FIFOs for what is larger
//	  │
//	engine   puts a call on a stream: one kernel of package kernels/cuda
//	  │
//	watcher  while kernels run: has one failed, has a rank died, has the communicator stopped? Then they leave
//
// # Memory
//
// A window is made with the driver's virtual memory, and handed to the other ranks as a file descriptor over a Unix
// socket, also within a process. Where a GPU can't reach another's memory, all windows are host memory instead: slower,
// with the same kernels. Buffers of the caller are read and written by the rank's own GPU alone.
//
// # Who waits for whom
//
// Kernels write into a page of host memory which operation they have done, and, once they have waited for long, for
// which rank. The watcher reads it; nothing is asked of the GPU, which answers nobody while a kernel runs.
package cuda
