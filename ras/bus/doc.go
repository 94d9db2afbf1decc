// Package bus pushes what RAS finds to whoever wants to know. Nobody polls.
//
//	publishers ──Publish──▶ gate ──▶ history ──▶ a bounded queue for each subscription ──Next──▶ sinks
//	                         │
//	                         ├ folds duplicates: the first passes, the others are counted
//	                         └ holds symptoms back while the condition that explains them is open
//
// An [Event] has a [Stage]: it opens a condition, changes it, closes it, or tells of a moment. The events of one
// condition share its Key. An event whose Cause is the key of an open condition is a symptom: it is held back, and
// counted on the event that closes its cause. A symptom that is still open a while after its cause has closed is
// published then; one that has closed by then never was news.
//
// Publish never waits for a subscriber. A queue that is full drops its oldest event, and the subscriber is told how
// many, by an event of the type semconv.EventMissed in the place of those that it missed. The history lets a subscriber
// that was away resume behind the last event that it has seen; where that is forgotten, an event of the type
// semconv.EventGap says so.
//
// Events are CloudEvents 1.0 (https://github.com/cloudevents/spec): [Event.CloudEvent], [Event.MarshalJSON]. Sinks,
// which carry them out of the process, are packages of their own beside this one; all follow [Sink], and package
// bustest checks that they do.
//
// To end without losing the last events, close the Bus, wait for each Sink's Run, and end their context if it takes too
// long.
package bus
