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

// ServeHTTP answers with the last traces as JSON, the newest first. The query may ask for one trace (trace=<32 hex
// digits>), for those of one communicator (comm=<32 hex digits>) or for operations that ended well (ops=1), and may
// lower the number of traces (limit=20).
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	traces, status, problem := s.query(r)
	if problem != "" {
		http.Error(w, problem, status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(map[string]any{"traces": append([]Trace{}, traces...)}) // fails if the client went away
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

// MarshalJSON encodes the trace as ServeHTTP answers it. Times are RFC 3339 in UTC.
func (t Trace) MarshalJSON() ([]byte, error) {
	out := struct {
		TraceID   oteltrace.TraceID `json:"trace_id"`
		Name      string            `json:"name"`
		Start     time.Time         `json:"start"`
		Open      bool              `json:"open"` // an act in it has started and not ended
		Failed    bool              `json:"failed"`
		Truncated int               `json:"truncated,omitempty"`
		Spans     []Span            `json:"spans"`
	}{TraceID: t.ID, Open: t.Open > 0, Truncated: t.Truncated, Spans: append([]Span{}, t.Spans...)}
	for i, sp := range t.Spans {
		out.Failed = out.Failed || sp.Error != ""
		if i == 0 { // an act's started span is its first
			out.Name, out.Start = strings.TrimSuffix(sp.Name, semconv.StartedSuffix), sp.Start
		}
		if sp.Start.Before(out.Start) {
			out.Start = sp.Start
		}
	}
	return json.Marshal(out)
}
