package trace

import (
	"sync"
	"time"
)

// deliveries finds out until when the spans of all that ended have been taken. Spans leave the queue in the order in
// which they came: so it is enough to know how many had come when an event had become spans, and how many have left.
// Two such marks will do, however long the queue is: one that will be reached, and the latest.
type deliveries struct {
	tell func(until int64) // nil tells nothing
	now  func() int64

	mu           sync.Mutex
	next, latest mark
}

// mark says that all that happened until a time had become so many spans. The zero value is none.
type mark struct {
	spans uint64
	until int64
}

// lateRecord is how long a record may still come after records of later times: its writer may lose the processor before
// it writes it.
const lateRecord = 50 * time.Millisecond

// queued takes note that what happened until a time, on the tape's clock, has become spans, the last of which is the
// spans-th.
func (d *deliveries) queued(spans uint64, until int64) {
	if d.tell == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latest = mark{spans, until}
	if d.next == (mark{}) {
		d.next = d.latest
	}
}

// reached takes note that so many spans have been taken.
func (d *deliveries) reached(spans uint64) {
	if d.tell == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	sure := d.now() - int64(lateRecord)
	switch {
	case d.latest == mark{} || d.next.spans > spans:
		return
	case d.latest.spans > spans:
		d.tell(min(d.next.until, sure))
		d.next = d.latest
	case d.latest.until > sure: // the rest of it is told with the next spans
		d.tell(sure)
		d.next = d.latest
	default:
		d.tell(d.latest.until)
		d.next, d.latest = mark{}, mark{}
	}
}
