// Package queue tracks the operations that one rank of a communicator has put on the streams of a GPU. Engines for
// device memory use it to check buffers, to order operations across streams, to number them, and to watch them until
// they are done.
//
//	engine/cuda, engine/nccl
//	  │ Enqueue: its place behind other streams, the engine's Put, Add
//	  ▼
//	Queue ──▶ Page   the number of the last operation that is done, on the tape if there is one: the GPU writes it
//	  │              every few operations; when it stands still, it is copied from the GPU's memory
//	  │
//	watcher          while operations run: has one given up, a rank died, the communicator stopped? Then they leave.
//	                 A goroutine beside it asks the driver, which may not answer before they have left
package queue
