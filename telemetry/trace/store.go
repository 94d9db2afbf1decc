package trace

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"go.opentelemetry.io/otel/attribute"
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
// that ended well are kept apart from all else, so that many of them never push out an act or an error. It is safe for
// concurrent use, and its methods hold a lock for microseconds only.
type Store struct {
	mu   sync.Mutex
	acts shelf
	ops  shelf
	open map[oteltrace.TraceID]int // acts that have started and not ended
}

// NewStore makes a Store for the last n traces with acts or errors and the last n with operations that ended well; n <
// 1 means DefaultStoreTraces.
func NewStore(n int) *Store {
	if n < 1 {
		n = DefaultStoreTraces
	}
	return &Store{
		acts: newLast[oteltrace.TraceID, *Trace](n), ops: newLast[oteltrace.TraceID, *Trace](n),
		open: make(map[oteltrace.TraceID]int),
	}
}

// newLast keeps the values of the last n keys.
func newLast[K comparable, V any](n int) *simplelru.LRU[K, V] {
	last, err := simplelru.NewLRU[K, V](n, nil)
	if err != nil {
		panic(err) // n isn't positive
	}
	return last
}

// Trace is what a Store knows of one trace: the spans of this process.
type Trace struct {
	ID        oteltrace.TraceID
	Spans     []Span // in the order in which they ended
	Truncated int    // spans beyond MaxTraceSpans, not kept
	Open      int    // acts in it that have started and not ended
}

// Span is a span as a Store keeps it, and as ServeHTTP tells it.
type Span struct {
	TraceID    oteltrace.TraceID `json:"-"`
	SpanID     oteltrace.SpanID  `json:"span_id"`
	Parent     oteltrace.SpanID  `json:"parent_span_id,omitzero"` // zero for a root
	Name       string            `json:"name"`
	Start      time.Time         `json:"start"` // in UTC
	Seconds    float64           `json:"duration_seconds"`
	Error      string            `json:"error,omitempty"` // empty if its status isn't Error
	Attributes Attributes        `json:"attributes"`
	Links      []Link            `json:"links,omitempty"`
}

// Attributes are those of a Span. They become texts, as all of its JSON's are, when somebody asks for them.
type Attributes []attribute.KeyValue

// Get is the text of one; empty if there is none.
func (a Attributes) Get(key attribute.Key) string {
	for i := range a {
		if a[i].Key == key {
			return a[i].Value.String()
		}
	}
	return ""
}

// MarshalJSON is an object of texts.
func (a Attributes) MarshalJSON() ([]byte, error) {
	texts := make(map[attribute.Key]string, len(a))
	for _, kv := range a {
		texts[kv.Key] = kv.Value.String()
	}
	return json.Marshal(texts)
}

// Link is a link of a Span; Kind is semconv.LinkKind.
type Link struct {
	TraceID oteltrace.TraceID `json:"trace_id"`
	SpanID  oteltrace.SpanID  `json:"span_id"`
	Kind    string            `json:"kind,omitempty"`
}

// shelf is a bounded list of traces, in the order in which they began; the oldest gives way.
type shelf = *simplelru.LRU[oteltrace.TraceID, *Trace]

func put(on shelf, span Span) {
	t, known := on.Peek(span.TraceID)
	if !known {
		t = &Trace{ID: span.TraceID}
		on.Add(t.ID, t)
	}
	if len(t.Spans) >= MaxTraceSpans {
		t.Truncated++
		return
	}
	t.Spans = append(t.Spans, span)
}

// keep keeps a span that began at a time of day, and lasted so long.
func (s *Store) keep(of *span, start time.Time, took time.Duration) {
	kept := Span{
		TraceID: of.id.trace, SpanID: of.id.span, Parent: of.id.parent, Name: of.name, Start: start.UTC(),
		Seconds: took.Seconds(), Attributes: Attributes(of.attrs),
	}
	if of.problem != nil {
		kept.Error = of.problem.text
	}
	for _, l := range of.links {
		set := attribute.NewSet(l.Attributes...)
		kind, _ := set.Value(semconv.LinkKind)
		kept.Links = append(kept.Links, Link{l.SpanContext.TraceID(), l.SpanContext.SpanID(), kind.AsString()})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ordinary(of.attrs, of.problem != nil) {
		put(s.ops, kept)
	} else {
		put(s.acts, kept)
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

// Trace returns the trace of that id, if it is kept.
func (s *Store) Trace(id oteltrace.TraceID) (t Trace, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, shelf := range []shelf{s.acts, s.ops} { // on both, if an operation failed on some of this process's ranks
		if on, kept := shelf.Peek(id); kept {
			t.Spans, t.Truncated, found = append(t.Spans, on.Spans...), t.Truncated+on.Truncated, true
		}
	}
	t.ID, t.Open = id, s.open[id]
	return t, found
}

// Acts returns the last traces of acts and errors, the newest first, at most n of them; n < 1 means all.
func (s *Store) Acts(n int) []Trace { return s.list(s.acts, n, lifecycle.CommID{}) }

// Operations returns the last traces of operations that ended well, the newest first, at most n of them; n < 1 means
// all.
func (s *Store) Operations(n int) []Trace { return s.list(s.ops, n, lifecycle.CommID{}) }

// ByComm returns the acts and operations of one communicator: acts before operations, the newest first.
func (s *Store) ByComm(id lifecycle.CommID) []Trace {
	return append(s.list(s.acts, 0, id), s.list(s.ops, 0, id)...)
}

// list lists the last n traces with spans of a communicator, of any if it is zero, the newest first.
func (s *Store) list(from shelf, n int, comm lifecycle.CommID) []Trace {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, list := comm.String(), []Trace(nil)
	of := func(sp Span) bool { return sp.Attributes.Get(semconv.CommID) == id }
	for _, last := range slices.Backward(from.Values()) {
		if n > 0 && len(list) == n {
			break
		}
		if t := *last; comm.IsZero() || slices.ContainsFunc(t.Spans, of) {
			t.Spans, t.Open = slices.Clip(t.Spans), s.open[t.ID]
			list = append(list, t)
		}
	}
	return list
}
