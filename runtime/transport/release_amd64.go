//go:build amd64 && !race

package transport

import (
	"sync/atomic"
	"unsafe"
)

// StoreRelease stores v behind all that was stored before. On this architecture every store is in order; those of
// sync/atomic wait, besides, until all before them have come to the cache.
func StoreRelease(p *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(p)) = v }
