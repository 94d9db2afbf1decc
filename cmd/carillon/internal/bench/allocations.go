package bench

import (
	"runtime"
	"strings"
)

// dataPath are the packages that carry operations out. What else a process allocates meanwhile is of those that look
// on, such as RAS: by the second and not by the operation.
var dataPath = []string{
	"github.com/carillon-rt/carillon/kernels.",
	"github.com/carillon-rt/carillon/runtime/ccl.",
	"github.com/carillon-rt/carillon/runtime/engine",
	"github.com/carillon-rt/carillon/runtime/proxy.",
	"github.com/carillon-rt/carillon/runtime/transport",
}

// countAllocations makes the runtime keep the stack of every allocation from now on, which allocated counts by.
func countAllocations() { runtime.MemProfileRate = 1 }

// allocated is how many allocations the data path has made in this process, in whichever goroutine, since
// countAllocations. It collects garbage, because the runtime tells of what was allocated before a collection.
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
			return false // where a goroutine waits: the scheduler keeps these, until the next collection
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
