//go:build !amd64 || race

package transport

import "sync/atomic"

// StoreRelease stores v after all previous stores.
func StoreRelease(p *atomic.Uint64, v uint64) { p.Store(v) }
