package tape

// counterName is what the kernel calls the counter that readCounter reads.
const counterName = "tsc"

// readCounter reads the time stamp counter. It waits for no instruction before it, so that the reading may be some
// nanoseconds early.
//
//go:noescape
func readCounter() uint64

// storeRelease stores v behind all that was stored before, for readers of the file. On this architecture every
// store is in order, and so is what the compiler makes of them; sync/atomic has sequentially consistent stores alone,
// each of which waits until those before it have come to the cache.
func storeRelease(p *uint64, v uint64) { *p = v }
