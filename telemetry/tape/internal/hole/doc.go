// Package hole keeps a process alive whose mapped file loses its pages: somebody truncates it, or its disk fails. The
// kernel answers the next access with SIGBUS, which ends a Go program, in whichever goroutine of the user's it comes.
//
// Protected memory has a handler for SIGBUS before Go's. It puts empty memory of the process's own in the place of the
// whole mapping, and the access goes on there:
//
//	store ──▶ page is gone ──▶ SIGBUS ──▶ handler ──┬─ in a Region ──▶ mmap(anonymous, fixed) ──▶ the store, again
//	                                                └─ elsewhere ────▶ Go's handler, as ever
//
// That costs the accesses nothing. What else there is does: a deferred recover and debug.SetPanicOnFault cost each
// operation a tenth of its time, leave locks held, and are per goroutine; a look at the file's size before each access
// is a system call, and too early; and no file that outlives its process can be sealed, or kept from its own user.
//
// The handler is in assembly, as it must not need a stack or a goroutine of Go's. On architectures without one, memory
// is not protected.
package hole
