package logsink_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/telemetry/logsink"
)

// Flush leaves nothing in the queues, and later lines are still logged.
func TestFlush(t *testing.T) {
	c := newCollector(t, nil)
	t.Setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", c.URL+"/v1/logs")
	t.Setenv("OTEL_BLRP_SCHEDULE_DELAY", "3600000")
	s, out := newSink(t, logsink.Config{})
	log := slog.New(s.Events())
	for _, text := range []string{"first", "second"} {
		log.Info(text)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "msg="+text) {
			t.Errorf("%q is not written: %s", text, out)
		}
		c.mu.Lock()
		if n := len(c.records); n == 0 || c.records[n-1].GetBody().GetStringValue() != text {
			t.Errorf("%q is not exported: %v", text, c.records)
		}
		c.mu.Unlock()
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Errorf("after Close: %v", err)
	}
}

// hung is a terminal that takes nothing until it is released.
type hung struct{ release chan struct{} }

func (h hung) Write(p []byte) (int, error) {
	<-h.release
	return len(p), nil
}

func TestFlushIsBounded(t *testing.T) {
	h := hung{make(chan struct{})}
	s, _ := newSink(t, logsink.Config{Stderr: h})
	slog.New(s.Events()).Info("never written")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Flush(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a terminal hangs: %v", err)
	}
	close(h.release)
}

// A file that takes no lines is reported once, on standard error, and lost lines are counted.
func TestFileThatIsFull(t *testing.T) {
	s, out := newSink(t, logsink.Config{File: "/dev/full"})
	for range 3 {
		s.Logger().Warn("lost")
	}
	slog.New(s.Events()).Warn("lost too")
	if err := s.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	if got, _ := s.Lost(); got != 4 {
		t.Errorf("%d lines counted as lost, want 4", got)
	}
	if text := out.String(); strings.Count(text, "NCCL_DEBUG_FILE can't be written") != 1 ||
		!strings.Contains(text, "no space left") {
		t.Errorf("standard error has: %s", text)
	}
}

// An invalid number is reported once, with the value used instead.
func TestBadBatchVariables(t *testing.T) {
	c := newCollector(t, nil)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	for _, name := range []string{
		"OTEL_BLRP_MAX_QUEUE_SIZE", "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE",
		"OTEL_BLRP_SCHEDULE_DELAY", "OTEL_BLRP_EXPORT_TIMEOUT",
	} {
		for _, value := range []string{"-1", "many", "99999999999"} {
			t.Run(name+"="+value, func(t *testing.T) {
				t.Setenv(name, value)
				s, out := newSink(t, logsink.Config{})
				s.Logger().Info("hello")
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if text := out.String(); strings.Count(text, "level=WARN") != 1 ||
					!strings.Contains(text, "variable="+name) ||
					!strings.Contains(text, "value="+value) {
					t.Errorf("standard error has: %s", text)
				}
			})
		}
	}
}
