// Package cuda is the engine for the memory of NVIDIA GPUs: up to 8 ranks of one host, in one process or in several.
//
//	GPU      a device of this process: its kernels are loaded before a communicator begins
//	  │ Open, on all ranks
//	  ▼
//	window   one per rank, accessible to all ranks: mailboxes for LL and LL128, slots of FIFOs, and control words
//	  │
//	engine   puts each call on a stream: one kernel of package kernels/cuda
//	  │
//	watcher  while kernels run: has one given up, has a rank died, has the communicator stopped? Then they leave
//
// # Memory
//
// A window is allocated with the driver's virtual memory API and handed to the other ranks as a file descriptor over a
// Unix socket, also within a process. Where a GPU can't access another one's memory, all windows are on the host
// instead: slower, with the same kernels. Memory of both kinds is mapped and unmapped while kernels run.
//
// Callers' buffers are registered with the other ranks when they are seen for the second time, or captured (reach.go):
// kernels then read and write them directly. All other buffers are accessed by the rank's own GPU alone, and staged
// through the windows.
//
// # Who waits for whom
//
// Kernels write into a page of host memory which operation they have completed, and, once they have waited for long,
// for which rank. The watcher reads the page; it asks nothing of the GPU, which answers nobody while a kernel runs.
//
// A rank that closes its end says so in the windows of the others, behind all that it has sent. A kernel that still
// waits for it then gives up, as one does whose rank has found another reason, and the watcher reads why.
package cuda
