// Package bustest checks that a bus.Sink keeps bus.Sink's promises: it sends in order what was published before and
// during Run, obeys its filter, holds nothing up if its receiver takes nothing, reports what it dropped, counts every
// event once, drains when the Bus is closed, and ends when its context does.
//
// A sink's test starts the sink and a receiver for it. The receiver passes what it gets to [Receiver.Take], which
// blocks until the suite wants it, and finds the suite's events in it by their text.
package bustest
