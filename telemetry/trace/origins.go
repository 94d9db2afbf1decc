package trace

import (
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// maxOrigins bounds what is remembered of how communicators were made. The oldest is forgotten first.
const maxOrigins = 8192

// origins knows which span made a communicator, so that later acts can link to it: its init, or, if it has none of its
// own, the split, whose trace can't be computed from its id and is remembered.
type origins struct {
	splits map[lifecycle.CommID]oteltrace.TraceID // by child; zero for one that has an init of its own
	order  []lifecycle.CommID                     // a ring, once it is full
	next   int                                    // the oldest in it
}

func newOrigins() *origins {
	return &origins{splits: make(map[lifecycle.CommID]oteltrace.TraceID)}
}

// inited notes that comm has an init of its own.
func (o *origins) inited(comm lifecycle.CommID) { o.remember(comm, oteltrace.TraceID{}) }

// hasInit tells whether comm is known to have an init of its own.
func (o *origins) hasInit(comm lifecycle.CommID) bool {
	split, known := o.splits[comm]
	return known && !split.IsValid()
}

// made notes that the split of that trace made the child, which counts unless the child has an init of its own.
func (o *origins) made(child lifecycle.CommID, split oteltrace.TraceID) {
	if _, known := o.splits[child]; !known {
		o.remember(child, split)
	}
}

func (o *origins) remember(comm lifecycle.CommID, trace oteltrace.TraceID) {
	if _, known := o.splits[comm]; !known {
		if len(o.order) < maxOrigins {
			o.order = append(o.order, comm)
		} else {
			delete(o.splits, o.order[o.next])
			o.order[o.next] = comm
			o.next = (o.next + 1) % maxOrigins
		}
	}
	o.splits[comm] = trace
}

// of is what is known of how comm was made.
func (o *origins) of(comm lifecycle.CommID) origin { return origin{comm, o.splits[comm]} }

// origin is how a communicator was made.
type origin struct {
	comm  lifecycle.CommID
	split oteltrace.TraceID // zero: by an init of its own
}

// span is the one that made the communicator, as one of its ranks links to it: the rank's own init, or the root of the
// split, in which the rank had another number.
func (o origin) span(rank int) identity {
	if o.split.IsValid() {
		return rankSpan(o.split, 0)
	}
	return rankSpan(ActTraceID(o.comm, tape.ActInit, 0), rank)
}

// link leads a rank of the communicator to how it was made.
func (o origin) link(rank int) oteltrace.Link { return link(o.span(max(rank, 0)), semconv.LinkBirth) }

// lineage is how a communicator was made, and the one that it came from.
type lineage struct{ own, parent origin }

func (o *origins) lineage(m *member) (l lineage) {
	l.own = o.of(m.ID)
	if !m.Parent.IsZero() {
		l.parent = o.of(m.Parent)
	}
	return l
}

// links connects an operation of a rank to its communicator's lineage.
func (l lineage) links(rank int) []oteltrace.Link {
	links := []oteltrace.Link{l.own.link(rank)}
	if !l.parent.comm.IsZero() {
		links = append(links, link(l.parent.span(0), semconv.LinkParent))
	}
	return links
}
