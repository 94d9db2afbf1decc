// Package bustest checks that a bus.Sink does what bus.Sink promises: it carries in order what was published before and
// during Run, obeys its filter, holds nobody up when its receiver takes nothing, says what it dropped, counts every
// event once, drains when the Bus is closed and ends when its context does.
//
// A sink's package starts the sink and a receiver for it; the receiver hands what it gets to [Receiver.Take], which
// blocks until the suite wants it. The suite's events are found in it by their text.
package bustest
