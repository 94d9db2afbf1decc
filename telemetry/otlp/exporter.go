package otlp

import (
	"context"
	"net/http"
	"os"

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

// NewSpanExporter makes an exporter of spans. It connects to nobody yet. The error names the wrong variable.
func NewSpanExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	return spans(ctx, fromEnv("TRACES"))
}

// NewMetricExporter is NewSpanExporter for metrics.
func NewMetricExporter(ctx context.Context) (sdkmetric.Exporter, error) {
	return metrics(ctx, fromEnv("METRICS"))
}

// NewLogExporter is NewSpanExporter for log records.
func NewLogExporter(ctx context.Context) (sdklog.Exporter, error) {
	return logs(ctx, fromEnv("LOGS"))
}

func fromEnv(name string) signal {
	s := signal{name: name, getenv: os.Getenv, transport: http.DefaultTransport}
	if t, ok := s.transport.(*http.Transport); ok {
		s.transport = t.Clone() // whoever changes the program's own doesn't change what telemetry goes through
	}
	return s
}

func spans(ctx context.Context, s signal) (sdktrace.SpanExporter, error) {
	protocol, err := s.protocol()
	if err != nil {
		return nil, err
	}
	if protocol == protocolGRPC {
		var opts []otlptracegrpc.Option
		if s.plain() {
			opts = append(opts, otlptracegrpc.WithInsecure())
		}
		return otlptracegrpc.New(ctx, opts...)
	}
	var opts []otlptracehttp.Option
	if s.plain() {
		opts = append(opts, otlptracehttp.WithInsecure())
	}
	if c := s.client(); c != nil {
		opts = append(opts, otlptracehttp.WithHTTPClient(c))
	}
	return otlptracehttp.New(ctx, opts...)
}

func metrics(ctx context.Context, s signal) (sdkmetric.Exporter, error) {
	protocol, err := s.protocol()
	if err != nil {
		return nil, err
	}
	if protocol == protocolGRPC {
		var opts []otlpmetricgrpc.Option
		if s.plain() {
			opts = append(opts, otlpmetricgrpc.WithInsecure())
		}
		return otlpmetricgrpc.New(ctx, opts...)
	}
	var opts []otlpmetrichttp.Option
	if s.plain() {
		opts = append(opts, otlpmetrichttp.WithInsecure())
	}
	if c := s.client(); c != nil {
		opts = append(opts, otlpmetrichttp.WithHTTPClient(c))
	}
	return otlpmetrichttp.New(ctx, opts...)
}

func logs(ctx context.Context, s signal) (sdklog.Exporter, error) {
	protocol, err := s.protocol()
	if err != nil {
		return nil, err
	}
	if protocol == protocolGRPC {
		var opts []otlploggrpc.Option
		if s.plain() {
			opts = append(opts, otlploggrpc.WithInsecure())
		}
		return otlploggrpc.New(ctx, opts...)
	}
	var opts []otlploghttp.Option
	if s.plain() {
		opts = append(opts, otlploghttp.WithInsecure())
	}
	if c := s.client(); c != nil {
		opts = append(opts, otlploghttp.WithHTTPClient(c))
	}
	return otlploghttp.New(ctx, opts...)
}
