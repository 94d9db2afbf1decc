//go:build amd64 && !race

package transport

import (
	"sync/atomic"
	"unsafe"
)

// StoreRelease stores v after all previous stores. On this architecture all stores are in order; those of sync/atomic
// also wait until all previous stores have reached the cache.
func StoreRelease(p *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(p)) = v }
