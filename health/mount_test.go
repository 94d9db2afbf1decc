package health_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/health"
)

// TestMounted: in a program's own server, under a prefix and any name, the endpoint answers as if it listened itself;
// the links of its page work, and streams end when it stops.
func TestMounted(t *testing.T) {
	begun, stopped := make(chan struct{}), make(chan struct{})
	s, err := health.New(health.Config{Registry: &health.Registry{}, Routes: []health.Route{{
		Path: "/api/v1/mine", Title: "mine", Stream: true,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "begun\n")
			_ = http.NewResponseController(w).Flush()
			close(begun)
			<-r.Context().Done()
			close(stopped)
		}),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if s.URL() != "" || s.Addr() != "" {
		t.Errorf("it listens at %q, %q", s.URL(), s.Addr())
	}
	mux := http.NewServeMux()
	mux.Handle("/carillon/", http.StripPrefix("/carillon", s))
	server := httptest.NewServer(mux)
	defer server.Close()

	ask := func(path string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "orders.example.org"
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	page, err := io.ReadAll(ask("/carillon/").Body)
	if err != nil {
		t.Fatal(err)
	}
	base, _ := url.Parse("/carillon/")
	for part := range strings.SplitSeq(string(page), `href="`) {
		link, _, _ := strings.Cut(part, `"`)
		to, err := url.Parse(link)
		if err != nil || strings.HasPrefix(part, "<!") || to.Scheme == "data" || link == "api/v1/mine" {
			continue
		}
		if resp := ask(base.ResolveReference(to).String()); resp.StatusCode != http.StatusOK {
			t.Errorf("the page leads to %s, which answers %s", link, resp.Status)
		}
	}
	stream := bufio.NewReader(ask("/carillon/api/v1/mine").Body)
	if line, err := stream.ReadString('\n'); line != "begun\n" {
		t.Errorf("the stream says %q, %v", line, err)
	}
	<-begun
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	<-stopped
	if resp := ask("/carillon/api/v1/mine"); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("after Stop a stream answers %s", resp.Status)
	}
}
