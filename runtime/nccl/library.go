//go:build linux && cgo

package nccl

// #cgo LDFLAGS: -ldl
// #include "library.h"
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"
)

// A Library is an NCCL that is loaded. It stays so until the process ends.
type Library struct{ c *C.library }

// Open loads the library at path. If path is empty it is CARILLON_NCCL_LIB; or, if that is not set, libnccl.so.2 where
// the loader finds it, or where Python's package nvidia-nccl has it: in VIRTUAL_ENV, or among the system's packages. It
// fails with ErrUnavailable.
func Open(path string) (*Library, error) {
	path = cmp.Or(path, os.Getenv("CARILLON_NCCL_LIB"))
	if path != "" {
		return open(path)
	}
	l, err := open("libnccl.so.2")
	if err == nil {
		return l, nil
	}
	for _, prefix := range []string{os.Getenv("VIRTUAL_ENV"), "/usr/local", "/usr"} {
		found, _ := filepath.Glob(prefix + "/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2")
		for _, path := range found {
			if l, err := open(path); err == nil {
				return l, nil
			}
		}
	}
	return nil, err
}

func open(path string) (*Library, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var text *C.char
	if c := C.open_library(name, &text); c != nil {
		return &Library{c}, nil
	}
	return nil, fmt.Errorf("%w: %s: %s: install libnccl2, or set CARILLON_NCCL_LIB to the library's path",
		ErrUnavailable, path, strings.TrimPrefix(C.GoString(text), path+": "))
}

// Version is NCCL's, such as 2.28.9.
func (l *Library) Version() (string, error) {
	var v C.int
	err := l.check("ncclGetVersion", nil, C.shim_version(l.c, &v))
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100), err
}

// check makes an error of what a function answered; of a communicator, if there is one.
func (l *Library) check(call string, comm C.ncclComm_t, r C.ncclResult_t) error {
	if r == 0 {
		return nil
	}
	e := &Error{Call: call, Result: Result(r), Text: C.GoString(C.shim_text(l.c, r))}
	if e.Result != ErrInProgress {
		e.Last = strings.TrimSpace(C.GoString(C.shim_last(l.c, comm)))
	}
	return e
}

// An ID is what the ranks of a communicator find each other by.
type ID [128]byte

// NewID makes an ID, on one rank. The process must live until all ranks have it used.
func (l *Library) NewID() (id ID, err error) {
	err = l.check("ncclGetUniqueId", nil, C.shim_id(l.c, unsafe.Pointer(&id)))
	return id, err
}

// A Comm is a rank of a communicator. Its methods belong to one goroutine at a time, and may not be called after
// Destroy or Abort.
type Comm struct {
	library *Library
	c       C.ncclComm_t
	ops     []C.operation
}

// Init begins to make a communicator, on all ranks, and returns at once. The context of the rank's device must be
// current on the thread (cuda.Context.Within).
func (l *Library) Init(id ID, rank, size int) (*Comm, error) {
	c := &Comm{library: l}
	err := l.check("ncclCommInitRankConfig", nil, C.shim_init(l.c, &c.c, C.int(size), unsafe.Pointer(&id), C.int(rank)))
	if err != nil && !errors.Is(err, ErrInProgress) {
		return nil, err
	}
	return c, nil
}

func (c *Comm) check(call string, r C.ncclResult_t) error { return c.library.check(call, c.c, r) }

// begun is check for a call that goes on in the background: Ready tells of its end.
func (c *Comm) begun(call string, r C.ncclResult_t) error {
	if Result(r) == ErrInProgress {
		return nil
	}
	return c.check(call, r)
}

// Ready is nil if all that was called is done, ErrInProgress if not, and otherwise what has failed since: also what an
// operation on a stream met.
func (c *Comm) Ready() error {
	return c.check("ncclCommGetAsyncError", C.shim_async(c.library.c, c.c))
}

// Finalize begins to end what was begun on the communicator.
func (c *Comm) Finalize() error {
	return c.begun("ncclCommFinalize", C.shim_finalize(c.library.c, c.c))
}

// Destroy frees the communicator, which was finalized.
func (c *Comm) Destroy() error { return c.check("ncclCommDestroy", C.shim_destroy(c.library.c, c.c)) }

// Abort frees the communicator: operations on streams end early. It may block while a graph has operations.
func (c *Comm) Abort() error { return c.check("ncclCommAbort", C.shim_abort(c.library.c, c.c)) }

// A Call is one of NCCL's operations.
type Call int

// The operations. Types and reductions have NCCL's numbers.
const (
	AllReduce     Call = C.ALL_REDUCE
	Broadcast     Call = C.BROADCAST
	Reduce        Call = C.REDUCE
	AllGather     Call = C.ALL_GATHER
	ReduceScatter Call = C.REDUCE_SCATTER
	Send          Call = C.SEND
	Recv          Call = C.RECV
)

// An Op is one operation.
type Op struct {
	Call       Call
	Type       int
	Reduction  int
	Peer       int    // or root
	Send, Recv uint64 // addresses on the device
	Count      int    // in elements, as NCCL has it
}

// Run puts operations on a stream, all at the same time if there are several.
func (c *Comm) Run(stream uintptr, ops ...Op) error {
	c.ops = c.ops[:0]
	for i := range ops {
		o := &ops[i]
		c.ops = append(c.ops, C.operation{
			call: C.int(o.Call), _type: C.int(o.Type), reduction: C.int(o.Reduction), peer: C.int(o.Peer),
			send: C.uint64_t(o.Send), recv: C.uint64_t(o.Recv), count: C.size_t(o.Count),
		})
	}
	if len(ops) == 0 {
		return nil
	}
	return c.begun("putting operations on a stream",
		C.shim_run(c.library.c, c.c, C.uint64_t(stream), &c.ops[0], C.int(len(ops))))
}

// PreMulSum makes a reduction that multiplies with a scalar, the lowest bytes of which are of the type.
func (c *Comm) PreMulSum(scalar uint64, dataType int) (reduction int, err error) {
	var op C.int
	err = c.check("ncclRedOpCreatePreMulSum",
		C.shim_scaled(c.library.c, c.c, &op, C.uint64_t(scalar), C.int(dataType)))
	return int(op), err
}

// EndReduction gives a reduction up that PreMulSum made; operations that were called with it are done all the same.
func (c *Comm) EndReduction(reduction int) error {
	return c.check("ncclRedOpDestroy", C.shim_unscale(c.library.c, c.c, C.int(reduction)))
}
