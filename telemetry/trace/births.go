package trace

import (
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// maxBirths bounds what is remembered of how communicators were made. The oldest is forgotten first.
const maxBirths = 8192

// births knows which span made a communicator, so that later acts can link to it. A communicator that came from an init has it as its
// birth; one that has no init of its own was made by a split, whose trace can't be computed from its id and is remembered.
type births struct {
	splits map[lifecycle.CommID]oteltrace.TraceID // by child; zero for one that has an init of its own
	order  []lifecycle.CommID                     // a ring, once it is full
	next   int                                    // the oldest in it
}

func newBirths() *births {
	return &births{splits: make(map[lifecycle.CommID]oteltrace.TraceID)}
}

// inited notes that comm has an init of its own.
func (b *births) inited(comm lifecycle.CommID) { b.remember(comm, oteltrace.TraceID{}) }

// hasInit tells whether comm is known to have an init of its own.
func (b *births) hasInit(comm lifecycle.CommID) bool {
	split, known := b.splits[comm]
	return known && !split.IsValid()
}

// made notes that the split of that trace made the child, which counts unless the child has an init of its own.
func (b *births) made(child lifecycle.CommID, split oteltrace.TraceID) {
	if _, known := b.splits[child]; !known {
		b.remember(child, split)
	}
}

func (b *births) remember(comm lifecycle.CommID, trace oteltrace.TraceID) {
	if _, known := b.splits[comm]; !known {
		if len(b.order) < maxBirths {
			b.order = append(b.order, comm)
		} else {
			delete(b.splits, b.order[b.next])
			b.order[b.next] = comm
			b.next = (b.next + 1) % maxBirths
		}
	}
	b.splits[comm] = trace
}

// of is what is known of how comm was made.
func (b *births) of(comm lifecycle.CommID) birth { return birth{comm, b.splits[comm]} }

// birth is how a communicator was made.
type birth struct {
	comm  lifecycle.CommID
	split oteltrace.TraceID // zero: by an init of its own
}

// span is the one that made the communicator, as one of its ranks links to it: the rank's own init, or the root of the split, in which
// the rank had another number.
func (b birth) span(rank int) identity {
	if b.split.IsValid() {
		return rankSpan(b.split, 0)
	}
	return rankSpan(ActTraceID(b.comm, tape.ActInit, 0), rank)
}

// origin is where an operation comes from: how its communicator was made, and the one that this came from.
type origin struct{ own, parent birth }

func (b *births) origin(who *subject) (o origin) {
	o.own = b.of(who.ID)
	if !who.Parent.IsZero() {
		o.parent = b.of(who.Parent)
	}
	return o
}

// links connects an operation of a rank to its origin.
func (o origin) links(rank int) []oteltrace.Link {
	links := []oteltrace.Link{o.own.link(rank)}
	if !o.parent.comm.IsZero() {
		links = append(links, link(o.parent.span(0), semconv.LinkParent))
	}
	return links
}

// link leads a rank of the communicator to how it was made.
func (b birth) link(rank int) oteltrace.Link { return link(b.span(max(rank, 0)), semconv.LinkBirth) }
