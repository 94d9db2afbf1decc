//go:build !amd64

package tape

import "sync/atomic"

// No counter here is read at less than what the kernel's clock costs.
func counterIsClock(string, bool) bool { return false }

func counterIsInvariant() bool { return false }

func readCounter() uint64 { return 0 }

// storeRelease stores v behind all that was stored before.
func storeRelease(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
