package tape

// hasCounter says that readCounter reads something.
const hasCounter = true

// counterName is what the kernel calls the counter.
const counterName = "tsc"

// readCounter reads the time stamp counter. It waits for no instruction before it, so that the reading may be some nanoseconds early.
//
//go:noescape
func readCounter() uint64

// readClock is c.now, in as few instructions as it takes.
//
//go:noescape
func readClock(c *counted) int64

var _ = lookAgain // which readClock goes to
