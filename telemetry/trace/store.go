package trace

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Bounds of a Store.
const (
	// DefaultStoreTraces is how many traces of each sort a Store keeps.
	DefaultStoreTraces = 512
	// MaxTraceSpans is how many spans of one trace a Store keeps; the others are counted.
	MaxTraceSpans = 256
)

// Store keeps the spans of the last traces in memory, so that a process can show them without a collector. Operations
// that ended well are kept apart from all else, so that many of them never push out an act or an error. It is an
// sdktrace.SpanProcessor, safe for concurrent use, and its methods hold a lock for microseconds only.
type Store struct {
	mu   sync.Mutex
	acts shelf
	ops  shelf
	open map[oteltrace.TraceID]int // acts that have started and not ended
}

var _ sdktrace.SpanProcessor = (*Store)(nil)

// NewStore makes a Store for the last n traces with acts or errors and the last n with operations that ended well; n <
// 1 means DefaultStoreTraces.
func NewStore(n int) *Store {
	if n < 1 {
		n = DefaultStoreTraces
	}
	return &Store{acts: newShelf(n), ops: newShelf(n), open: make(map[oteltrace.TraceID]int)}
}

// Trace is what a Store knows of one trace: the spans of this process.
type Trace struct {
	ID        oteltrace.TraceID
	Spans     []Span // in the order in which they ended
	Truncated int    // spans beyond MaxTraceSpans, not kept
	Open      int    // acts in it that have started and not ended
}

// Span is a span as a Store keeps it.
type Span struct {
	Name       string
	TraceID    oteltrace.TraceID
	SpanID     oteltrace.SpanID
	Parent     oteltrace.SpanID // invalid for a root
	Start, End time.Time
	Status     sdktrace.Status
	Attributes []attribute.KeyValue
	Links      []sdktrace.Link
}

// Failed tells whether the span's status is Error.
func (s *Span) Failed() bool { return s.Status.Code == codes.Error }

// Attribute is the value of an attribute, as text; "" if there is none.
func (s *Span) Attribute(key attribute.Key) string {
	for _, kv := range s.Attributes {
		if kv.Key == key {
			return kv.Value.String()
		}
	}
	return ""
}

// shelf is a bounded list of traces, the oldest of which gives way.
type shelf struct {
	byID  map[oteltrace.TraceID]*Trace
	order []oteltrace.TraceID // a ring, once it is full
	next  int                 // where the next trace goes in it
	limit int
}

func newShelf(limit int) shelf {
	return shelf{byID: make(map[oteltrace.TraceID]*Trace), limit: limit}
}

func (s *shelf) add(span Span) {
	t := s.byID[span.TraceID]
	if t == nil {
		t = &Trace{ID: span.TraceID}
		s.byID[t.ID] = t
		if len(s.order) < s.limit {
			s.order = append(s.order, t.ID)
		} else {
			delete(s.byID, s.order[s.next])
			s.order[s.next] = t.ID
			s.next = (s.next + 1) % s.limit
		}
	}
	if len(t.Spans) >= MaxTraceSpans {
		t.Truncated++
		return
	}
	t.Spans = append(t.Spans, span)
}

// OnStart does nothing: spans are kept when they end.
func (*Store) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd keeps the span.
func (s *Store) OnEnd(span sdktrace.ReadOnlySpan) {
	kept := Span{
		Name:       span.Name(),
		TraceID:    span.SpanContext().TraceID(),
		SpanID:     span.SpanContext().SpanID(),
		Parent:     span.Parent().SpanID(),
		Start:      span.StartTime(),
		End:        span.EndTime(),
		Status:     span.Status(),
		Attributes: span.Attributes(),
		Links:      span.Links(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ordinary(span) {
		s.ops.add(kept)
	} else {
		s.acts.add(kept)
	}
}

// opened notes that an act of the trace has started on a rank of this process.
func (s *Store) opened(id oteltrace.TraceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[id]++
}

// closed notes that one has ended.
func (s *Store) closed(id oteltrace.TraceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id]--; s.open[id] <= 0 {
		delete(s.open, id)
	}
}

// ForceFlush does nothing.
func (*Store) ForceFlush(context.Context) error { return nil }

// Shutdown does nothing: what is kept stays readable.
func (*Store) Shutdown(context.Context) error { return nil }

// Trace returns the trace of that id, if it is kept.
func (s *Store) Trace(id oteltrace.TraceID) (t Trace, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, shelf := range []*shelf{&s.acts, &s.ops} { // on both, if an operation failed on some of this process's ranks
		if on := shelf.byID[id]; on != nil {
			t.Spans, t.Truncated, found = append(t.Spans, on.Spans...), t.Truncated+on.Truncated, true
		}
	}
	t.ID, t.Open = id, s.open[id]
	return t, found
}

// Acts returns the last traces of acts and errors, the newest first, at most n of them; n < 1 means all.
func (s *Store) Acts(n int) []Trace { return s.list(&s.acts, n, lifecycle.CommID{}) }

// Operations returns the last traces of operations that ended well, the newest first, at most n of them; n < 1 means
// all.
func (s *Store) Operations(n int) []Trace { return s.list(&s.ops, n, lifecycle.CommID{}) }

// ByComm returns the acts and operations of one communicator: acts before operations, the newest first.
func (s *Store) ByComm(id lifecycle.CommID) []Trace {
	return append(s.list(&s.acts, 0, id), s.list(&s.ops, 0, id)...)
}

// list lists the last n traces with spans of a communicator, of any if it is zero, the newest first.
func (s *Store) list(shelf *shelf, n int, comm lifecycle.CommID) []Trace {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, list := comm.String(), []Trace(nil)
	of := func(sp Span) bool { return sp.Attribute(semconv.CommID) == id }
	for i := range shelf.order {
		if n > 0 && len(list) == n {
			break
		}
		t := *shelf.byID[shelf.order[(shelf.next-1-i+2*len(shelf.order))%len(shelf.order)]]
		if comm.IsZero() || slices.ContainsFunc(t.Spans, of) {
			t.Spans, t.Open = slices.Clip(t.Spans), s.open[t.ID]
			list = append(list, t)
		}
	}
	return list
}
