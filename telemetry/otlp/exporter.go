package otlp

import (
	"context"
	"fmt"
	"mime"
	"net/http"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// NewSpanExporter makes an exporter of spans, without connecting it. The error names the invalid variable.
func NewSpanExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	const s signal = "TRACES"
	switch protocol, err := s.protocol(); {
	case err != nil:
		return nil, err
	case protocol == protocolGRPC:
		return otlptracegrpc.New(ctx, options(s, otlptracegrpc.WithInsecure, nil, nil)...)
	default:
		client := s.client()
		e, err := otlptracehttp.New(ctx,
			options(s, otlptracehttp.WithInsecure, otlptracehttp.WithHTTPClient, client)...)
		return spanExporter{e, client}, err
	}
}

// NewMetricExporter is NewSpanExporter for metrics.
func NewMetricExporter(ctx context.Context) (sdkmetric.Exporter, error) {
	const s signal = "METRICS"
	switch protocol, err := s.protocol(); {
	case err != nil:
		return nil, err
	case protocol == protocolGRPC:
		return otlpmetricgrpc.New(ctx, options(s, otlpmetricgrpc.WithInsecure, nil, nil)...)
	default:
		client := s.client()
		e, err := otlpmetrichttp.New(ctx,
			options(s, otlpmetrichttp.WithInsecure, otlpmetrichttp.WithHTTPClient, client)...)
		return metricExporter{e, client}, err
	}
}

// NewLogExporter is NewSpanExporter for log records.
func NewLogExporter(ctx context.Context) (sdklog.Exporter, error) {
	const s signal = "LOGS"
	switch protocol, err := s.protocol(); {
	case err != nil:
		return nil, err
	case protocol == protocolGRPC:
		return otlploggrpc.New(ctx, options(s, otlploggrpc.WithInsecure, nil, nil)...)
	default:
		client := s.client()
		e, err := otlploghttp.New(ctx, options(s, otlploghttp.WithInsecure, otlploghttp.WithHTTPClient, client)...)
		return logExporter{e, client}, err
	}
}

// options are the corrections of one of the SDK's exporters; with and client are nil for gRPC.
func options[O any](s signal, insecure func() O, with func(*http.Client) O, client *http.Client) (opts []O) {
	if s.plain() {
		opts = append(opts, insecure())
	}
	if with != nil && !s.certified() {
		opts = append(opts, with(client))
	}
	return opts
}

// The SDK's exporters leave their client's idle connections open after Shutdown; these close them.
type (
	spanExporter struct {
		sdktrace.SpanExporter
		client *http.Client
	}
	metricExporter struct {
		sdkmetric.Exporter
		client *http.Client
	}
	logExporter struct {
		sdklog.Exporter
		client *http.Client
	}
)

func (e spanExporter) Shutdown(ctx context.Context) error {
	defer e.client.CloseIdleConnections()
	return e.SpanExporter.Shutdown(ctx)
}

func (e metricExporter) Shutdown(ctx context.Context) error {
	defer e.client.CloseIdleConnections()
	return e.Exporter.Shutdown(ctx)
}

func (e logExporter) Shutdown(ctx context.Context) error {
	defer e.client.CloseIdleConnections()
	return e.Exporter.Shutdown(ctx)
}

func (s signal) client() *http.Client {
	transport := http.DefaultTransport
	if t, ok := transport.(*http.Transport); ok {
		transport = t.Clone() // changes to the program's default don't affect telemetry
	}
	name, _ := s.variable("ENDPOINT")
	return &http.Client{Transport: noPages{transport, name}, Timeout: s.timeout()}
}

// noPages is a transport for which an answer that is a web page is an error.
type noPages struct {
	next     http.RoundTripper
	variable string // that sets the endpoint
}

// CloseIdleConnections is called by http.Client's.
func (r noPages) CloseIdleConnections() { (&http.Client{Transport: r.next}).CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (r noPages) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err != nil || resp.StatusCode/100 != 2 {
		return resp, err
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || kind != "text/html" && kind != "application/xhtml+xml" {
		return resp, nil // without a type, it is no web page
	}
	_ = resp.Body.Close() // unread
	return nil, fmt.Errorf("the answer is %s with a web page (%s): this is no collector of OTLP; see %s", resp.Status,
		kind, r.variable)
}
