//go:build gpu

package gpu

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/health/gpu"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// patience bounds what should happen at once, but may have to wait for a GPU that starts up.
const patience = 30 * time.Second

// watch starts a Monitor of all GPUs and waits until it has read them.
func watch(t *testing.T) (*gpu.Monitor, <-chan gpu.Event) {
	t.Helper()
	events := make(chan gpu.Event, 64)
	m := gpu.New(gpu.Config{All: true, OnEvent: func(e gpu.Event) { events <- e }})
	began := time.Now()
	m.Start()
	t.Cleanup(func() {
		began := time.Now()
		if err := m.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		t.Logf("stopped in %v", time.Since(began).Round(time.Millisecond))
	})
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		if s := m.Snapshot(); !s.Read.IsZero() {
			t.Logf("%s, read %v after Start", s.Status, time.Since(began).Round(time.Millisecond))
			return m, events
		} else if time.Since(began) > patience {
			t.Fatalf("%s; these tests need an NVIDIA driver and a GPU", s.Status)
		}
	}
}

func TestGPUsTellHowTheyAre(t *testing.T) {
	m, _ := watch(t)
	s := m.Read(t.Context())
	for _, g := range s.GPUs {
		text, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s", text)
		if g.Lost || g.Name == "" || !strings.HasPrefix(g.UUID, "GPU-") || g.Memory == nil || g.Memory.Total < 1<<30 ||
			g.Memory.Used > g.Memory.Total {
			t.Errorf("GPU %s tells too little, or nonsense", g.Label)
		}
	}
	for _, c := range s.Conditions {
		t.Logf("%s: %s (%s)", c.Severity, c.Text, c.Advice)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range families {
		seen[f.GetName()] = true
		t.Logf("%s", f)
	}
	for _, name := range []string{
		semconv.MetricGPUDevices, semconv.MetricGPUMemoryUsed, semconv.MetricGPUMemoryTotal,
		semconv.MetricGPUThrottled,
	} {
		if !seen[name] {
			t.Errorf("no %s", name)
		}
	}
}

// TestWatchingCostsNothing measures the processor time of ten idle seconds, and of readings.
func TestWatchingCostsNothing(t *testing.T) {
	m, _ := watch(t)
	const idle = 10 * time.Second
	before, began := processorTime(t), time.Now()
	<-time.After(idle)
	used := processorTime(t) - before
	share := 100 * float64(used) / float64(time.Since(began))
	t.Logf("idle for %v: %v of processor time, %.3f %% of a core", idle, used, share)
	if share > 0.5 {
		t.Errorf("watching costs %.2f %% of a core", share)
	}
	for range 3 {
		<-time.After(gpu.MaxAge)
		before, began = processorTime(t), time.Now()
		m.Read(t.Context())
		t.Logf("a reading: %v, %v of processor time", time.Since(began), processorTime(t)-before)
	}
	began = time.Now()
	for range 1000 {
		m.Read(t.Context())
	}
	t.Logf("1000 times from the cache: %v", time.Since(began))
}

// TestTwoWatch runs two Monitors in one process, as two nodes do: with two waits at a time, NVML makes one of them
// spin.
func TestTwoWatch(t *testing.T) {
	watch(t)
	watch(t)
	const idle = 5 * time.Second
	before, began := processorTime(t), time.Now()
	<-time.After(idle)
	share := 100 * float64(processorTime(t)-before) / float64(time.Since(began))
	t.Logf("idle for %v: %.3f %% of a core", idle, share)
	if share > 1 {
		t.Errorf("watching twice costs %.2f %% of a core", share)
	}
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestAnXidArrives makes another process write to unmapped memory, and waits for the driver to report it.
func TestAnXidArrives(t *testing.T) {
	program := filepath.Join(t.TempDir(), "fault")
	if out, err := exec.CommandContext(t.Context(), "nvcc", "-o", program,
		filepath.Join("testdata", "fault.cu")).CombinedOutput(); err != nil {
		t.Fatalf("nvcc, which comes with CUDA, must be on the PATH: %v\n%s", err, out)
	}
	m, events := watch(t)
	began := time.Now()
	out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	t.Logf("the program, for %v: %s", time.Since(began).Round(time.Millisecond), strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatalf("it did not fail as it should: %v", err)
	}
	ended := time.Now()
	deadline := time.After(patience)
	for {
		select {
		case e := <-events:
			t.Logf("%v after the program's end (it was made %v before that): %s %q",
				time.Since(ended).Round(time.Millisecond),
				ended.Sub(e.Time).Round(time.Millisecond), e.Type, e.Condition.Text)
			if e.Type != semconv.EventGPUXid {
				continue
			}
			if xid := e.Condition.Xid; xid != 31 && xid != 13 {
				t.Errorf("Xid %d, want 31 or 13", xid)
			}
			s := m.Read(t.Context())
			if len(s.GPUs) == 0 || len(s.GPUs[0].Xids) == 0 {
				t.Errorf("it was not counted: %+v", s.GPUs)
			}
			return
		case <-deadline:
			t.Fatal("no Xid arrived")
		}
	}
}
