package bench

import (
	"runtime"
	"strings"
)

// dataPath are the packages that carry operations out. All other allocations of a process come from packages that
// observe, such as RAS: their number depends on the time and not on the number of operations.
var dataPath = []string{
	"github.com/carillon-rt/carillon/kernels.",
	"github.com/carillon-rt/carillon/runtime/ccl.",
	"github.com/carillon-rt/carillon/runtime/engine",
	"github.com/carillon-rt/carillon/runtime/proxy.",
	"github.com/carillon-rt/carillon/runtime/transport",
}

// countAllocations makes the runtime record the stack of every allocation from now on; allocated counts these stacks.
func countAllocations() { runtime.MemProfileRate = 1 }

// allocated is the number of allocations that the data path has made in this process, in any goroutine, since
// countAllocations. It runs the garbage collector, because the runtime reports only allocations before a collection.
func allocated() (n int64) {
	runtime.GC()
	var records []runtime.MemProfileRecord
	for size, ok := 0, false; !ok; records = records[:size] {
		records = make([]runtime.MemProfileRecord, max(2*size, 1024))
		size, ok = runtime.MemProfile(records, true)
		size = min(size, len(records))
	}
	for i := range records {
		if ofDataPath(records[i].Stack()) {
			n += records[i].AllocObjects
		}
	}
	return n
}

func ofDataPath(stack []uintptr) bool {
	frames := runtime.CallersFrames(stack)
	for {
		frame, more := frames.Next()
		if frame.Function == "runtime.acquireSudog" {
			return false // where a goroutine waits: the scheduler caches these until the next collection
		}
		for _, p := range dataPath {
			if strings.HasPrefix(frame.Function, p) {
				return true
			}
		}
		if !more {
			return false
		}
	}
}
