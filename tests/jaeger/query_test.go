package jaeger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Service is the service name of ranks unless another one is set.
const Service = "carillon"

// Query is a search, with fields like those of Jaeger's search page.
type Query struct {
	Operation string
	Tags      map[string]string // of the span or of its process
}

// Await queries Jaeger for the traces that match q until enough returns nil: its error says what is missing. It returns
// the traces with all their spans, oldest first. When patience ends, the test fails with that error and with the traces
// that Jaeger had.
func (j *Jaeger) Await(q Query, enough func([]Trace) error) []Trace {
	j.t.Helper()
	values := url.Values{"service": {Service}, "limit": {"1000"}}
	if q.Operation != "" {
		values.Set("operation", q.Operation)
	}
	if len(q.Tags) > 0 {
		tags, err := json.Marshal(q.Tags)
		if err != nil {
			j.t.Fatal(err)
		}
		values.Set("tags", string(tags))
	}
	var traces []Trace
	j.poll(fmt.Sprintf("Jaeger to show %q %v", q.Operation, q.Tags), func(ctx context.Context) error {
		var answer struct{ Data []Trace }
		if err := get(ctx, "http://"+j.query+"/api/traces?"+values.Encode(), &answer); err != nil {
			return err
		}
		traces = answer.Data
		for i := range traces {
			traces[i].tidy()
		}
		slices.SortFunc(traces, func(a, b Trace) int { return a.Spans[0].Start().Compare(b.Spans[0].Start()) })
		if err := enough(traces); err != nil {
			return fmt.Errorf("%w; Jaeger has:\n%v", err, traces)
		}
		return nil
	})
	return traces
}

// poll calls ask until it returns nil. When patience ends, the test fails with the last error.
func (j *Jaeger) poll(what string, ask func(ctx context.Context) error) {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), patience)
	defer cancel()
	again := time.NewTicker(interval)
	defer again.Stop()
	var last error
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		if last == nil || !errors.Is(err, context.DeadlineExceeded) {
			last = err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			j.t.Fatalf("waited %v for %s: %v", patience, what, last)
		}
	}
}

// get makes an HTTP request, and decodes the JSON answer unless into is nil.
func get(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// Trace is a trace as Jaeger's HTTP API returns it.
type Trace struct {
	TraceID   string
	Spans     []*Span // by start
	Processes map[string]struct {
		ServiceName string
		Tags        []tag
	}
}

// Span is one span of a Trace.
type Span struct {
	TraceID, SpanID, OperationName string
	References                     []Reference
	StartTime, Duration            int64 // microseconds
	ProcessID                      string
	Warnings                       []string // Jaeger's own warnings, which its page shows beside the span

	// Tags are the attributes of the span, and Process those of its resource, as text. Service is the resource's name.
	Tags, Process map[string]string `json:"-"`
	Service       string            `json:"-"`

	RawTags []tag `json:"tags"`
}

// Reference refers from a span to its parent or to a linked span.
type Reference struct {
	RefType         string // childOf or link
	TraceID, SpanID string
}

const (
	childOf = "CHILD_OF"
	link    = "FOLLOWS_FROM" // Jaeger's form of OpenTelemetry's links
)

type tag struct {
	Key   string
	Value any
}

func texts(tags []tag) map[string]string {
	m := make(map[string]string, len(tags))
	for _, t := range tags {
		switch v := t.Value.(type) {
		case float64:
			m[t.Key] = strconv.FormatFloat(v, 'f', -1, 64)
		default:
			m[t.Key] = fmt.Sprint(v)
		}
	}
	return m
}

func (t *Trace) tidy() {
	slices.SortStableFunc(t.Spans, func(a, b *Span) int {
		return cmp.Or(cmp.Compare(a.StartTime, b.StartTime), cmp.Compare(b.Duration, a.Duration))
	})
	for _, s := range t.Spans {
		p := t.Processes[s.ProcessID]
		s.Tags, s.Process, s.Service = texts(s.RawTags), texts(p.Tags), p.ServiceName
	}
}

// Named returns the spans of that name.
func (t *Trace) Named(name string) []*Span {
	var named []*Span
	for _, s := range t.Spans {
		if s.OperationName == name {
			named = append(named, s)
		}
	}
	return named
}

// String lists the spans, one a line, for a failing test.
func (t Trace) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "trace %s\n", t.TraceID)
	for _, s := range t.Spans {
		fmt.Fprintf(&b, "  %s %s of rank %s: %v to %v, %v %v %v\n", s.SpanID, s.OperationName, s.Tags["ccl.rank"],
			s.Start().Format(time.StampMicro), s.End().Format(time.StampMicro), s.References, s.Tags, s.Warnings)
	}
	return b.String()
}

// Start is when the span began, with microsecond precision.
func (s *Span) Start() time.Time { return time.UnixMicro(s.StartTime) }

// End is when the span ended, with microsecond precision.
func (s *Span) End() time.Time { return time.UnixMicro(s.StartTime + s.Duration) }

// Parent is the id of the span's parent, which may be missing from the trace; empty for a root. If a span also links to
// its parent, Jaeger keeps only one reference, the link; Jaeger's page takes such a link within a trace for the parent,
// too.
func (s *Span) Parent() string {
	for _, kind := range []string{childOf, link} {
		for _, r := range s.References {
			if r.RefType == kind && r.TraceID == s.TraceID {
				return r.SpanID
			}
		}
	}
	return ""
}

// LinksTo tells whether the span links to another.
func (s *Span) LinksTo(other *Span) bool {
	return slices.Contains(s.References, Reference{link, other.TraceID, other.SpanID})
}
