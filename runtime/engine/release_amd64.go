//go:build amd64 && !race

package engine

import (
	"sync/atomic"
	"unsafe"
)

// storeRelease stores v behind all that was stored before. On this architecture every store is in order; those of
// sync/atomic wait, besides, until all before them have come to the cache.
func storeRelease(p *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(p)) = v }
