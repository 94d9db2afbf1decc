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
// Callers' buffers are registered with the other ranks when calls pass them for the second time, or under capture
// (reach.go): kernels then read and write them directly. Other buffers are accessed only by the rank's own GPU, and
// staged through the windows.
//
// # Who waits for whom
//
// Kernels write to a page of host memory which operation they have completed and, after a long wait, which rank they
// wait for. The watcher reads the page; it makes no calls to the GPU, which doesn't answer while a kernel runs.
//
// A rank that closes its end writes that into the other ranks' windows, after everything that it has sent. A kernel
// that still waits for that rank then gives up, as does one whose own rank tells it to leave. The watcher reads the
// reason.
package cuda
