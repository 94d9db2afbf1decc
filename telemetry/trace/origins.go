package trace

import (
	"github.com/hashicorp/golang-lru/v2/simplelru"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// maxOrigins bounds the communicators whose origin is stored. The oldest is dropped first.
const maxOrigins = 8192

// origins holds the span that made each communicator, so that later acts can link to it: the communicator's own init
// or, if it has none, the split, whose trace can't be computed from the communicator's id.
type origins struct {
	splits *simplelru.LRU[lifecycle.CommID, oteltrace.TraceID] // by child; zero if the child has its own init
}

func newOrigins() *origins {
	return &origins{newLast[lifecycle.CommID, oteltrace.TraceID](maxOrigins)}
}

// addInit records that comm has an init of its own.
func (o *origins) addInit(comm lifecycle.CommID) { o.splits.Add(comm, oteltrace.TraceID{}) }

// hasInit tells whether comm is known to have an init of its own.
func (o *origins) hasInit(comm lifecycle.CommID) bool {
	split, known := o.splits.Peek(comm)
	return known && !split.IsValid()
}

// addSplit records that the split with this trace made the child, unless the child has its own init.
func (o *origins) addSplit(child lifecycle.CommID, split oteltrace.TraceID) {
	if !o.splits.Contains(child) {
		o.splits.Add(child, split)
	}
}

// span is the span that made comm, for a link of one of its ranks: the rank's own init, or the root of the split, in
// which the rank had another number.
func (o *origins) span(comm lifecycle.CommID, rank int) identity {
	if split, _ := o.splits.Peek(comm); split.IsValid() {
		return rankSpan(split, 0)
	}
	return rankSpan(ActTraceID(comm, tape.ActInit, 0), rank)
}

// birthLink links a rank of a communicator to the span that made it.
func (o *origins) birthLink(m *model.Comm) oteltrace.Link {
	return link(o.span(m.ID, max(m.Rank, 0)).context(), semconv.LinkBirth)
}

// links links an operation to the spans that made its communicator and the communicator's parent.
func (o *origins) links(m *model.Comm) []oteltrace.Link {
	links := []oteltrace.Link{o.birthLink(m)}
	if !m.Parent.IsZero() {
		links = append(links, link(o.span(m.Parent, 0).context(), semconv.LinkParent))
	}
	return links
}
