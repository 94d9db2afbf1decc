package otlp

import (
	"fmt"
	"mime"
	"net/http"
)

func (s signal) client() *http.Client {
	transport := http.DefaultTransport
	if t, ok := transport.(*http.Transport); ok {
		transport = t.Clone() // whoever changes the program's own doesn't change what telemetry goes through
	}
	name, _ := s.variable("ENDPOINT")
	return &http.Client{Transport: receipts{transport, name}, Timeout: s.timeout()}
}

// receipts is a transport that takes no web page for a receipt.
type receipts struct {
	next     http.RoundTripper
	variable string // which names the endpoint
}

// RoundTrip implements http.RoundTripper.
func (r receipts) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err != nil || resp.StatusCode/100 != 2 {
		return resp, err
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || kind != "text/html" && kind != "application/xhtml+xml" {
		return resp, nil // no type is no page
	}
	_ = resp.Body.Close() // it isn't read
	return nil, fmt.Errorf("the answer is %s with a web page (%s): this is no collector of OTLP; see %s", resp.Status,
		kind, r.variable)
}
