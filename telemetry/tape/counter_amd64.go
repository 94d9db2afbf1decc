package tape

// counterName is what the kernel calls the counter that readCounter reads.
const counterName = "tsc"

// readCounter reads the time stamp counter. It waits for no instruction before it, so that the reading may be some
// nanoseconds early.
//
//go:noescape
func readCounter() uint64
