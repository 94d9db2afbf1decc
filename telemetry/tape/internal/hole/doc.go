// Package hole keeps a process alive when a file that it has mapped loses its pages, because somebody truncates the
// file or its disk fails. The kernel answers the next access with SIGBUS, which ends a Go program, whichever goroutine
// gets it.
//
// Protected memory has a handler for SIGBUS before Go's. It maps anonymous memory over the whole mapping, and the
// access is repeated there:
//
//	store ──▶ page is gone ──▶ SIGBUS ──▶ handler ──┬─ in a Region ──▶ mmap(anonymous, fixed) ──▶ the store, again
//	                                                └─ elsewhere ────▶ Go's handler, as ever
//
// That adds no cost to accesses. The alternatives are worse: a deferred recover and debug.SetPanicOnFault cost each
// operation a tenth of its time, leave locks held, and are per goroutine; reading the file's size before each access is
// a system call, and a race; and a file that outlives its process can't be sealed, or protected from its own user.
//
// The handler is in assembly, as it must not need a stack or a goroutine of Go's. On architectures without one, memory
// is not protected.
package hole
