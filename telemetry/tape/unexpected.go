package tape

// Unexpected counts, by kind, NCCL's calls to its profiler plug-in that break NCCL's interface. The plug-in tolerates
// all of them.
type Unexpected [len(unexpectedNames)]uint64

// unexpectedNames are the kinds, as metrics and C have them.
var unexpectedNames = [...]string{
	"foreign",         // an event of another process (PXN): its context is a pointer there, and isn't followed
	"no_communicator", // an event with a context that isn't the plug-in's, or has ended
	"unknown_event",   // a stop or state of something that is no event of the plug-in
	"stopped_twice",   // a stop of an event that had just been stopped, or whose communicator had ended
	"late",            // a stop or state of an event stopped so long ago that another has its place
	"after_stop",      // a state of an event that had just been stopped
	"never_stopped",   // an event that was open when its communicator ended, or long after it began
	"no_room",         // an event or a communicator that found no place
	"not_written",     // an operation that two threads began at once on one communicator
	"overruled",       // another writer changed the mask of events
}

// All yields the number of calls of each kind, by name.
func (u Unexpected) All(yield func(kind string, n uint64) bool) {
	for i, n := range u {
		if !yield(unexpectedNames[i], n) {
			return
		}
	}
}
