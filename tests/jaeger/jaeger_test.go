package jaeger

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/tests/e2e"
)

const (
	// tool is Jaeger's program, as server/go.mod names it.
	tool = "github.com/jaegertracing/jaeger/cmd/all-in-one"
	// maxTraces bounds what Jaeger keeps; a test makes far fewer.
	maxTraces = "10000"
	// patience is how long a test waits for Jaeger to be ready, or to show spans that were sent to it.
	patience = 30 * time.Second
	// interval is the time between two queries.
	interval = 50 * time.Millisecond
)

// Jaeger is a running Jaeger: collector, memory and query API in one process.
type Jaeger struct {
	t                         *testing.T
	query, otlpHTTP, otlpGRPC string // host:port
}

// Start builds Jaeger if necessary, starts it on free ports of the loopback address, and waits until it says that it is
// ready. Jaeger ends with the test.
func Start(t *testing.T) *Jaeger {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	j := &Jaeger{t: t, query: e2e.FreeAddr(t), otlpHTTP: e2e.FreeAddr(t), otlpGRPC: e2e.FreeAddr(t)}
	admin := e2e.FreeAddr(t)
	e2e.Start(t, []string{"SPAN_STORAGE_TYPE=memory"}, program, "--memory.max-traces="+maxTraces,
		"--admin.http.host-port="+admin,
		"--query.http-server.host-port="+j.query,
		"--query.grpc-server.host-port="+e2e.FreeAddr(t),
		"--collector.otlp.http.host-port="+j.otlpHTTP,
		"--collector.otlp.grpc.host-port="+j.otlpGRPC,
		"--collector.http-server.host-port="+e2e.FreeAddr(t),
		"--collector.grpc-server.host-port="+e2e.FreeAddr(t))
	j.poll("Jaeger to be ready", func(ctx context.Context) error { return get(ctx, "http://"+admin+"/", nil) })
	return j
}

// build returns the path of Jaeger's program. The go command builds it once, which takes minutes, and caches it.
func build() (string, error) {
	root, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	cmd := exec.Command("go", "tool", "-n", tool)
	cmd.Dir = filepath.Join(filepath.Dir(strings.TrimSpace(string(root))), "jaeger", "server")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("jaeger could not be built, which needs the Go module proxy: %w\n%s"+
			"To try again: cd %s && go tool -n %s", err, stderr.Bytes(), cmd.Dir, tool)
	}
	return strings.TrimSpace(stdout.String()), nil
}

// Env is the environment of a process that sends its spans to this Jaeger by OTLP, over "http/protobuf" or "grpc", soon
// after they are made. It has none of the OTEL_* variables of the test's own environment.
func (j *Jaeger) Env(protocol string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") {
			env = append(env, name+"=")
		}
	}
	endpoint := map[string]string{"http/protobuf": j.otlpHTTP, "grpc": j.otlpGRPC}[protocol]
	if endpoint == "" {
		j.t.Fatalf("no way to send spans over %q", protocol)
	}
	return append(env, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol,
		"OTEL_TRACES_EXPORTER=otlp",
		"OTEL_METRICS_EXPORTER=none", // Jaeger accepts only traces
		"OTEL_LOGS_EXPORTER=none")
}
