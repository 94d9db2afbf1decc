package hole

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// Region is protected memory. The handler reads it: assembly has the offsets of its fields. It is never freed, but
// reused after Release.
type Region struct {
	start atomic.Uintptr
	size  atomic.Uintptr // 0: it protects nothing
	lost  atomic.Uintptr // not 0: the handler was here
	next  *Region        // never changes
}

var (
	mu      sync.Mutex
	regions atomic.Pointer[Region] // all that were ever made, for the handler
	install = sync.OnceFunc(installHandler)
)

// Protect protects memory mapped from a file, in whole pages, until Release.
func Protect(mem []byte) *Region {
	install()
	mu.Lock()
	defer mu.Unlock()
	r := regions.Load()
	for r != nil && r.size.Load() != 0 {
		r = r.next
	}
	if r == nil {
		r = &Region{next: regions.Load()}
		regions.Store(r)
	}
	r.lost.Store(0)
	r.start.Store(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	r.size.Store(uintptr(len(mem)))
	return r
}

// Release ends the protection, before the memory is unmapped. Nothing may access the memory afterwards.
func (r *Region) Release() {
	mu.Lock()
	defer mu.Unlock()
	r.size.Store(0)
}
