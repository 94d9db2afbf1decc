package left

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector receives spans by OTLP over HTTP.
type collector struct {
	env []string // for processes that are to send to it

	mu    sync.Mutex
	more  sync.Cond        // signalled when spans have arrived
	spans map[string]*span // by their ids
}

type span struct {
	name, rank string
	trace      string
	times      int // how often it has arrived
}

func newCollector(t *testing.T) *collector {
	c := &collector{spans: map[string]*span{}}
	c.more.L = &c.mu
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.take(r); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	c.env = []string{ // nothing is sent before the end
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + server.URL + "/v1/traces", "OTEL_BSP_SCHEDULE_DELAY=3600000",
	}
	return c
}

func (c *collector) take(r *http.Request) (err error) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(body); err != nil {
			return err
		}
	}
	data, err := io.ReadAll(body)
	var request collect.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(data, &request)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.more.Broadcast()
	for _, of := range request.ResourceSpans {
		rank := ""
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.instance.id" {
				rank = a.Value.GetStringValue()
			}
		}
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				id := string(s.TraceId) + string(s.SpanId)
				if c.spans[id] == nil {
					c.spans[id] = &span{name: s.Name, rank: rank, trace: string(s.TraceId)}
				}
				c.spans[id].times++
			}
		}
	}
	return err
}

// await waits for a span of that name from a rank.
func (c *collector) await(name, rank string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for _, s := range c.spans {
			if s.name == name && s.rank == rank {
				return
			}
		}
		c.more.Wait()
	}
}

// hasOnce checks that each of the ranks has a span of that name, and that no span arrived twice.
func (c *collector) hasOnce(t *testing.T, name string, want ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var ranks []string
	for _, s := range c.spans {
		if s.times > 1 {
			t.Errorf("%s of rank %s came %d times", s.name, s.rank, s.times)
		}
		if s.name == name {
			ranks = append(ranks, s.rank)
		}
	}
	slices.Sort(ranks)
	if !slices.Equal(ranks, want) {
		t.Errorf("%s came of ranks %v, want %v", name, ranks, want)
	}
}
