//go:build !amd64 || race

package transport

import "sync/atomic"

// publish stores v behind all that was stored before, and before anything is loaded that is loaded behind it.
func publish(p *atomic.Uint64, v uint64, _ *atomic.Uint64) { p.Store(v) }
