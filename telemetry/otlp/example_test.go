package otlp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/carillon-rt/carillon/telemetry/otlp"
)

// A user interface in the place of a collector is detected.
func Example() {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<!doctype html><title>Traces</title>"))
	}))
	defer page.Close()
	_ = os.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", page.URL) // as the user's shell does
	defer func() { _ = os.Unsetenv("OTEL_EXPORTER_OTLP_ENDPOINT") }()

	ctx := context.Background()
	exporter, err := otlp.NewSpanExporter(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = exporter.ExportSpans(ctx, []sdktrace.ReadOnlySpan{tracetest.SpanStub{Name: "ccl.comm.init"}.Snapshot()})
	fmt.Println(strings.Contains(err.Error(), "this is no collector of OTLP; see OTEL_EXPORTER_OTLP_ENDPOINT"))
	// Output: true
}
