//go:build !amd64 || race

package engine

import "sync/atomic"

// storeRelease stores v behind all that was stored before.
func storeRelease(p *atomic.Uint64, v uint64) { p.Store(v) }
