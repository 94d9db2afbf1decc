//go:build !amd64

package tape

import "sync/atomic"

// counterIsClock is false: no counter here is cheaper to read than the kernel's clock.
func counterIsClock(string, bool) bool { return false }

func counterIsInvariant() bool { return false }

func readCounter() uint64 { return 0 }

// storeRelease stores v after all earlier stores.
func storeRelease(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
