//go:build !amd64 || race

package tape

import "sync/atomic"

// storeRelease stores v behind all that was stored before.
func storeRelease(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
