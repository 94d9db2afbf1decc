package tape

// Unexpected counts the calls of NCCL to its profiler plug-in that are not as NCCL's interface has them, by kind. The
// plug-in tolerates all of them.
type Unexpected [len(unexpectedNames)]uint64

// unexpectedNames are the kinds, as metrics and C have them.
var unexpectedNames = [...]string{
	"foreign",         // an event of another process (PXN): its context is a pointer there, and isn't followed
	"no_communicator", // an event with a context that isn't the plug-in's, or has ended
	"unknown_event",   // a stop or state of what is no event of the plug-in's
	"stopped_twice",   // a stop of what had just been stopped, or whose communicator had ended
	"late",            // a stop or state of what was stopped so long ago that another event has its place
	"after_stop",      // a state of what had just been stopped
	"never_stopped",   // an event that was open when its communicator ended, or long after it began
	"no_room",         // an event or a communicator that found no place
	"not_written",     // an operation that two threads began at once on one communicator
	"overruled",       // another writer changed the mask of events
}

// All yields how many there were of each kind, by name.
func (u Unexpected) All(yield func(kind string, n uint64) bool) {
	for i, n := range u {
		if !yield(unexpectedNames[i], n) {
			return
		}
	}
}
