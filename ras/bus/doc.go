// Package bus pushes RAS's findings to subscribers, so that nobody has to poll.
//
//	publishers ──Publish──▶ gate ──▶ history ──▶ a bounded queue for each subscription ──Next──▶ sinks
//	                         │
//	                         ├ folds duplicates: the first passes, the others are counted
//	                         └ holds symptoms back while the condition that explains them is open
//
// An [Event] has a [Stage]: it opens, changes or closes a condition, or reports something momentary. The events of one
// condition share its Key. An event whose Cause is the key of an open condition is a symptom: it is held back, and
// counted on the event that closes its cause. A symptom that is still open a while after its cause has closed is
// published then; one that has closed by then is never published.
//
// Publish never waits for a subscriber. A full queue drops its oldest event, and an event of the type
// semconv.EventMissed in place of the dropped ones says how many they were. A subscriber that was away resumes after
// the last event that it has seen, from the history; if that event is no longer there, an event of the type
// semconv.EventGap says so.
//
// Events are CloudEvents 1.0 (https://github.com/cloudevents/spec): [Event.CloudEvent], [Event.MarshalJSON]. Sinks,
// which send them out of the process, are in packages below this one. They implement [Sink], and TestSinksConform
// checks that they do.
//
// To shut down without losing the last events, close the Bus, wait for each Sink's Run, and end their context if that
// takes too long.
package bus
