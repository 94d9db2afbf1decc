package trace

import (
	"github.com/hashicorp/golang-lru/v2/simplelru"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// maxOrigins bounds what is remembered of how communicators were made. The oldest is forgotten first.
const maxOrigins = 8192

// origins knows which span made a communicator, so that later acts can link to it: its init, or, if it has none of its
// own, the split, whose trace can't be computed from its id and is remembered.
type origins struct {
	splits *simplelru.LRU[lifecycle.CommID, oteltrace.TraceID] // by child; zero for one that has an init of its own
}

func newOrigins() *origins {
	return &origins{newLast[lifecycle.CommID, oteltrace.TraceID](maxOrigins)}
}

// inited notes that comm has an init of its own.
func (o *origins) inited(comm lifecycle.CommID) { o.splits.Add(comm, oteltrace.TraceID{}) }

// hasInit tells whether comm is known to have an init of its own.
func (o *origins) hasInit(comm lifecycle.CommID) bool {
	split, known := o.splits.Peek(comm)
	return known && !split.IsValid()
}

// made notes that the split of that trace made the child, which counts unless the child has an init of its own.
func (o *origins) made(child lifecycle.CommID, split oteltrace.TraceID) {
	if !o.splits.Contains(child) {
		o.splits.Add(child, split)
	}
}

// span is the one that made comm, as one of its ranks links to it: the rank's own init, or the root of the split, in
// which the rank had another number.
func (o *origins) span(comm lifecycle.CommID, rank int) identity {
	if split, _ := o.splits.Peek(comm); split.IsValid() {
		return rankSpan(split, 0)
	}
	return rankSpan(ActTraceID(comm, tape.ActInit, 0), rank)
}

// birth leads a rank of a communicator to how that was made.
func (o *origins) birth(m *model.Comm) oteltrace.Link {
	return link(o.span(m.ID, max(m.Rank, 0)).context(), semconv.LinkBirth)
}

// links connects an operation to how its communicator was made, and the one that this came from.
func (o *origins) links(m *model.Comm) []oteltrace.Link {
	links := []oteltrace.Link{o.birth(m)}
	if !m.Parent.IsZero() {
		links = append(links, link(o.span(m.Parent, 0).context(), semconv.LinkParent))
	}
	return links
}
