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
	byID  map[oteltrace.TraceID]*shelved
	order []oteltrace.TraceID // a ring, once it is full
	next  int                 // where the next trace goes in it
	limit int
}

// shelved is a trace on a shelf: how its spans are made, which may cost something.
type shelved struct {
	comm      lifecycle.CommID // whose operation it is; zero on the shelf of acts, whose traces may be of several
	spans     []func() Span
	truncated int
}

func newShelf(limit int) shelf {
	return shelf{byID: make(map[oteltrace.TraceID]*shelved), limit: limit}
}

func (s *shelf) add(id oteltrace.TraceID, comm lifecycle.CommID, span func() Span) {
	t := s.byID[id]
	if t == nil {
		t = &shelved{comm: comm}
		s.byID[id] = t
		if len(s.order) < s.limit {
			s.order = append(s.order, id)
		} else {
			delete(s.byID, s.order[s.next])
			s.order[s.next] = id
			s.next = (s.next + 1) % s.limit
		}
	}
	if len(t.spans) >= MaxTraceSpans {
		t.truncated++
		return
	}
	t.spans = append(t.spans, span)
}

// newest lists the last n traces that are wanted, the newest first; n < 1 means all.
func (s *shelf) newest(n int, wanted func(*shelved) bool) []oteltrace.TraceID {
	var ids []oteltrace.TraceID
	for i := range s.order {
		if n > 0 && len(ids) == n {
			break
		}
		id := s.order[(s.next-1-i+2*len(s.order))%len(s.order)]
		if wanted(s.byID[id]) {
			ids = append(ids, id)
		}
	}
	return ids
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
	shelf, comm := &s.acts, lifecycle.CommID{}
	if ordinary(span) {
		shelf = &s.ops
		comm, _ = lifecycle.ParseCommID(kept.Attribute(semconv.CommID)) // a limit may have cut it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	shelf.add(kept.TraceID, comm, func() Span { return kept })
}

// keepOperation keeps a span of an operation that ended well, which is made when a reader asks for it.
func (s *Store) keepOperation(id oteltrace.TraceID, comm lifecycle.CommID, span func() Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops.add(id, comm, span)
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
func (s *Store) Trace(id oteltrace.TraceID) (Trace, bool) {
	t, found := s.recipe(id, &s.acts, &s.ops) // on both, if an operation failed on some of this process's ranks
	return t.trace(), found
}

// Acts returns the last traces of acts and errors, the newest first, at most n of them; n < 1 means all.
func (s *Store) Acts(n int) []Trace { return s.list(&s.acts, n, anyTrace) }

// Operations returns the last traces of operations that ended well, the newest first, at most n of them; n < 1 means
// all.
func (s *Store) Operations(n int) []Trace { return s.list(&s.ops, n, anyTrace) }

// ByComm returns the acts and operations of one communicator: acts before operations, the newest first.
func (s *Store) ByComm(id lifecycle.CommID) []Trace {
	text := id.String()
	acts := slices.DeleteFunc(s.Acts(0), func(t Trace) bool {
		return !slices.ContainsFunc(t.Spans, func(sp Span) bool { return sp.Attribute(semconv.CommID) == text })
	})
	return append(acts, s.list(&s.ops, 0, func(t *shelved) bool { return t.comm == id })...)
}

func anyTrace(*shelved) bool { return true }

// list makes the last n traces that are wanted, the newest first.
func (s *Store) list(shelf *shelf, n int, wanted func(*shelved) bool) []Trace {
	s.mu.Lock()
	ids := shelf.newest(n, wanted)
	s.mu.Unlock()
	list := make([]Trace, 0, len(ids))
	for _, id := range ids {
		if t, found := s.recipe(id, shelf); found { // else it has given way since
			list = append(list, t.trace())
		}
	}
	return list
}

// recipe is a trace of which the spans are still to be made.
type recipe struct {
	Trace
	spans []func() Span
}

// recipe is what the shelves have of a trace.
func (s *Store) recipe(id oteltrace.TraceID, shelves ...*shelf) (t recipe, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t = recipe{Trace: Trace{ID: id, Open: s.open[id]}}
	for _, shelf := range shelves {
		if on := shelf.byID[id]; on != nil {
			t.spans = append(t.spans, on.spans...) // the trace may still grow
			t.Truncated += on.truncated
			found = true
		}
	}
	return t, found
}

// trace makes the spans. The caller doesn't hold the store's lock.
func (r *recipe) trace() Trace {
	r.Spans = make([]Span, len(r.spans))
	for i, span := range r.spans {
		r.Spans[i] = span()
	}
	return r.Trace
}
