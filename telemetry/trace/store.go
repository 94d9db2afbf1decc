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
	// MaxTraceSpans is how many spans of one trace a Store keeps; further ones are only counted.
	MaxTraceSpans = 256
)

// Store keeps the spans of the last traces in memory, so that a process can show them without a collector. Operations
// that ended well are kept separately, so that many of them never push out an act or an error. It is safe for
// concurrent use, and its methods hold a lock for microseconds only.
type Store struct {
	mu   sync.Mutex
	acts traceLRU
	ops  traceLRU
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

// Trace is the spans of this process in one trace.
type Trace struct {
	ID        oteltrace.TraceID
	Spans     []Span // in the order in which they ended
	Truncated int    // spans that were dropped, beyond MaxTraceSpans
	Open      int    // acts in it that have started and not ended
}

// Span is a span of a Store, and of ServeHTTP's JSON.
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

// Attributes are a Span's attributes. In JSON all values are texts.
type Attributes []attribute.KeyValue

// Get returns the value of an attribute as text; empty if there is none.
func (a Attributes) Get(key attribute.Key) string {
	for i := range a {
		if a[i].Key == key {
			return a[i].Value.String()
		}
	}
	return ""
}

// MarshalJSON encodes the attributes as an object of texts.
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

// traceLRU is a bounded list of traces, in the order in which they began. It is never read with Get, so the oldest is
// dropped first.
type traceLRU = *simplelru.LRU[oteltrace.TraceID, *Trace]

// put adds a span to its trace in traces.
func put(traces traceLRU, span Span) {
	t, known := traces.Peek(span.TraceID)
	if !known {
		t = &Trace{ID: span.TraceID}
		traces.Add(t.ID, t)
	}
	if len(t.Spans) >= MaxTraceSpans {
		t.Truncated++
		return
	}
	t.Spans = append(t.Spans, span)
}

// keep adds a span, with its start as time of day and its duration.
func (s *Store) keep(sp *span, start time.Time, took time.Duration) {
	kept := Span{
		TraceID: sp.id.trace, SpanID: sp.id.span, Parent: sp.id.parent, Name: sp.name, Start: start.UTC(),
		Seconds: took.Seconds(), Attributes: Attributes(sp.attrs),
	}
	if sp.problem != nil {
		kept.Error = sp.problem.text
	}
	for _, l := range sp.links {
		kind := l.Attributes[0].Value.AsString() // see link
		kept.Links = append(kept.Links, Link{l.SpanContext.TraceID(), l.SpanContext.SpanID(), kind})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ordinary(sp.attrs, sp.problem != nil) {
		put(s.ops, kept)
	} else {
		put(s.acts, kept)
	}
}

// countOpen counts an act of the trace that has started on a rank of this process (1) or has ended (-1).
func (s *Store) countOpen(id oteltrace.TraceID, more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] += more; s.open[id] <= 0 {
		delete(s.open, id)
	}
}

// Trace returns the trace of that id, if it is kept.
func (s *Store) Trace(id oteltrace.TraceID) (t Trace, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, traces := range []traceLRU{s.acts, s.ops} { // in both if an operation failed on some ranks here
		if kept, ok := traces.Peek(id); ok {
			t.Spans, t.Truncated, found = append(t.Spans, kept.Spans...), t.Truncated+kept.Truncated, true
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

// list returns the last n traces with spans of a communicator, the newest first; a zero comm means any, n < 1 all.
func (s *Store) list(from traceLRU, n int, comm lifecycle.CommID) []Trace {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, list := comm.String(), []Trace(nil)
	isOfComm := func(sp Span) bool { return sp.Attributes.Get(semconv.CommID) == id }
	for _, last := range slices.Backward(from.Values()) {
		if n > 0 && len(list) == n {
			break
		}
		if t := *last; comm.IsZero() || slices.ContainsFunc(t.Spans, isOfComm) {
			t.Spans, t.Open = slices.Clip(t.Spans), s.open[t.ID]
			list = append(list, t)
		}
	}
	return list
}
