package tape

// counterIsClock tells whether the counter that readCounter reads is as good as the kernel's clock with that source.
// The kernel makes the counter its source only if it can be trusted. kvm-clock is the same counter, scaled by the host,
// and in most guests an invariant counter is the same on all processors. Where it isn't, a reading on another processor
// is off by their difference, until the next line of counterClock.
func counterIsClock(source string, invariant bool) bool {
	return source == "tsc" || source == "kvm-clock" && invariant
}

// counterIsInvariant tells whether the processor says that the counter never stops or changes its rate (CPUID
// 80000007H, EDX bit 8: Intel SDM volume 3, "Invariant TSC").
//
//go:noescape
func counterIsInvariant() bool

// readCounter reads the time stamp counter. It doesn't wait for earlier instructions, so the reading may be some
// nanoseconds early.
//
//go:noescape
func readCounter() uint64

// storeRelease stores v after all earlier stores, for readers of the file. On this architecture stores stay in order,
// and the compiler keeps their order too. sync/atomic has only sequentially consistent stores, each of which waits
// until all earlier ones have reached the cache.
func storeRelease(p *uint64, v uint64) { *p = v }
