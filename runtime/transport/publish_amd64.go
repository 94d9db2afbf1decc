//go:build amd64 && !race

package transport

import (
	"sync/atomic"
	"unsafe"
)

// publish stores v behind all that was stored before, and before anything is loaded that is loaded behind it. On this
// architecture every store is in order, and an atomic one waits until all before it have come to the cache. If that is
// of another word, which is the caller's alone, v comes there at once with what is beside it: a reader that looks at
// its cache line all the time does not take the line away between the two.
func publish(p *atomic.Uint64, v uint64, another *atomic.Uint64) {
	*(*uint64)(unsafe.Pointer(p)) = v
	another.Store(v)
}
