package tape

// counterIsClock tells whether the counter that readCounter reads is as good as the kernel's clock with that source.
// The kernel makes the counter its source only if it can be trusted. kvm-clock is the same counter, scaled by the host,
// and in most guests an invariant counter is the same on all processors. Where it isn't, a reading on another processor
// is off by what they differ, until the next line.
func counterIsClock(source string, invariant bool) bool {
	return source == "tsc" || source == "kvm-clock" && invariant
}

// counterIsInvariant tells whether the processor says that the counter never stops or changes its rate (CPUID
// 80000007H, EDX bit 8: Intel SDM volume 3, "Invariant TSC").
//
//go:noescape
func counterIsInvariant() bool

// readCounter reads the time stamp counter. It waits for no instruction before it, so that the reading may be some
// nanoseconds early.
//
//go:noescape
func readCounter() uint64

// storeRelease stores v behind all that was stored before, for readers of the file. On this architecture every
// store is in order, and so is what the compiler makes of them; sync/atomic has sequentially consistent stores alone,
// each of which waits until those before it have come to the cache.
func storeRelease(p *uint64, v uint64) { *p = v }
