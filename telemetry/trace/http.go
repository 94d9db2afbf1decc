package trace

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// maxListed bounds the traces in one answer of ServeHTTP.
const maxListed = 200

// traceJSON is one trace, as ServeHTTP tells it. Times are RFC 3339 in UTC.
type traceJSON struct {
	TraceID   string     `json:"trace_id"`
	Name      string     `json:"name"`
	Start     time.Time  `json:"start"`
	Open      bool       `json:"open"` // an act in it has started and not ended
	Failed    bool       `json:"failed"`
	Truncated int        `json:"truncated,omitempty"`
	Spans     []spanJSON `json:"spans"`
}

type spanJSON struct {
	SpanID     string            `json:"span_id"`
	ParentID   string            `json:"parent_span_id,omitempty"`
	Name       string            `json:"name"`
	Start      time.Time         `json:"start"`
	Seconds    float64           `json:"duration_seconds"`
	Error      string            `json:"error,omitempty"`
	Attributes map[string]string `json:"attributes"`
	Links      []linkJSON        `json:"links,omitempty"`
}

type linkJSON struct {
	TraceID string `json:"trace_id"`
	SpanID  string `json:"span_id"`
	Kind    string `json:"kind,omitempty"`
}

// ServeHTTP answers with the last traces as JSON, the newest first. The query may ask for one trace (trace=<32 hex
// digits>), for those of one communicator (comm=<32 hex digits>) or for operations that ended well (ops=1), and may
// lower the number of traces (limit=20).
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	traces, status, problem := s.query(r)
	if problem != "" {
		http.Error(w, problem, status)
		return
	}
	list := make([]traceJSON, len(traces))
	for i := range traces {
		list[i] = traces[i].json()
	}
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(map[string]any{"traces": list}) // fails if the client went away
}

func (s *Store) query(r *http.Request) (traces []Trace, status int, problem string) {
	q := r.URL.Query()
	limit := maxListed
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxListed {
			return nil, http.StatusBadRequest, "limit must be a number from 1 to " + strconv.Itoa(maxListed)
		}
		limit = n
	}
	switch {
	case q.Get("trace") != "":
		id, err := oteltrace.TraceIDFromHex(q.Get("trace"))
		if err != nil {
			return nil, http.StatusBadRequest, "trace must be 32 hexadecimal digits in lower case, not all zero"
		}
		t, ok := s.Trace(id)
		if !ok {
			return nil, http.StatusNotFound, "no trace " + id.String() +
				" is kept here: it was never seen by this process, or too many came after it"
		}
		return []Trace{t}, 0, ""
	case q.Get("comm") != "":
		id, err := lifecycle.ParseCommID(q.Get("comm"))
		if err != nil {
			return nil, http.StatusBadRequest, "comm must be a communicator's id, 32 hexadecimal digits"
		}
		traces = s.ByComm(id)
	case q.Get("ops") != "":
		traces = s.Operations(limit)
	default:
		traces = s.Acts(limit)
	}
	return traces[:min(len(traces), limit)], 0, ""
}

func (t *Trace) json() traceJSON {
	out := traceJSON{
		TraceID: t.ID.String(), Open: t.Open > 0, Truncated: t.Truncated, Spans: make([]spanJSON, len(t.Spans)),
	}
	for i := range t.Spans {
		sp := &t.Spans[i]
		out.Spans[i] = sp.json()
		out.Failed = out.Failed || sp.Failed()
		if i == 0 { // an act announces itself first
			out.Name = strings.TrimSuffix(sp.Name, semconv.StartedSuffix)
		}
		if out.Start.IsZero() || sp.Start.Before(out.Start) {
			out.Start = sp.Start.UTC()
		}
	}
	return out
}

func (s *Span) json() spanJSON {
	out := spanJSON{
		SpanID:     s.SpanID.String(),
		Name:       s.Name,
		Start:      s.Start.UTC(),
		Seconds:    s.End.Sub(s.Start).Seconds(),
		Attributes: make(map[string]string, len(s.Attributes)),
	}
	if s.Parent.IsValid() {
		out.ParentID = s.Parent.String()
	}
	if s.Failed() {
		out.Error = s.Status.Description
	}
	for _, kv := range s.Attributes {
		out.Attributes[string(kv.Key)] = kv.Value.String()
	}
	for _, l := range s.Links {
		link := linkJSON{TraceID: l.SpanContext.TraceID().String(), SpanID: l.SpanContext.SpanID().String()}
		for _, kv := range l.Attributes {
			if kv.Key == semconv.LinkKind {
				link.Kind = kv.Value.AsString()
			}
		}
		out.Links = append(out.Links, link)
	}
	return out
}
