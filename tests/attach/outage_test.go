package attach

import (
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestCollectorIsAway: an unreachable collector is reported once for all ranks of the job, with its endpoint.
func TestCollectorIsAway(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	endpoint := "http://" + e2e.FreeAddr(t)
	job := e2e.Start(t, []string{
		"LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "CARILLON_HEALTH_ADDR=off",
		"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint,
	}, "carillon", "attach", "--tape-dir", t.TempDir(), "--", fakenccl.Program(t, built, "traffic"), "processes", "4")
	if code := job.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	const says = `spans can't be exported` // with or without time to retry
	told := job.Output()
	if strings.Count(told, says) != 1 || strings.Count(told, "OTLP_ENDPOINT="+endpoint) != 1 {
		t.Errorf("it is to be told once that there is no collector at %s:\n%s", endpoint, told)
	}
}
