package logsink_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	oteltrace "go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/logsink"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// buffer is a terminal.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newSink(t testing.TB, cfg logsink.Config) (*logsink.Sink, *buffer) {
	t.Helper()
	out := &buffer{}
	if cfg.Stderr == nil {
		cfg.Stderr = out
	}
	s := logsink.New(t.Context(), cfg)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s, out
}

// everything logs a line of each sort.
func everything(log *slog.Logger) {
	log.Debug("details", semconv.LogSubsystem, "NET")
	log.Info("born", semconv.LogSubsystem, "INIT")
	log.Info("summed", semconv.LogSubsystem, "COLL")
	log.With(semconv.LogSubsystem, "COLL").Info("gathered")
	log.Log(context.Background(), logsink.LevelVersion, "version")
	log.Info("plain")
	log.Warn("trouble", semconv.LogSubsystem, "COLL")
	log.Error("broken")
}

// said lists which of everything's lines are in out.
func said(out string) string {
	var said []string
	for _, word := range []string{"details", "born", "summed", "gathered", "version", "plain", "trouble", "broken"} {
		if strings.Contains(out, "msg="+word) {
			said = append(said, word)
		}
	}
	return strings.Join(said, " ")
}

func TestNCCLDebug(t *testing.T) {
	for _, tt := range []struct{ debug, subsystems, want string }{
		{"VERSION", "", "version"},
		{"WARN", "", "version trouble broken"},
		{"warn", "", "version trouble broken"},
		{"INFO", "", "born version plain trouble broken"},
		{"ABORT", "", "born version plain trouble broken"},
		{"TRACE", "", "born version plain trouble broken"},
		{"INFO", "COLL", "summed gathered version plain trouble broken"},
		{"INFO", "init,coll", "born summed gathered version plain trouble broken"},
		{"INFO", "^COLL", "born version plain trouble broken"},
		{"INFO", "^INIT, NET", "summed gathered version plain trouble broken"},
		{"TRACE", "ALL", "details born summed gathered version plain trouble broken"},
		{"INFO", "^ALL", "version plain trouble broken"},
	} {
		t.Run(tt.debug+" "+tt.subsystems, func(t *testing.T) {
			level, err := logsink.ParseNCCLDebug(tt.debug)
			if err != nil {
				t.Fatal(err)
			}
			cfg := logsink.Config{Level: level, Version: true}
			if tt.subsystems != "" {
				if cfg.Subsystems, err = logsink.ParseSubsystems(tt.subsystems); err != nil {
					t.Fatal(err)
				}
			}
			s, out := newSink(t, cfg)
			everything(s.Logger())
			if got := said(out.String()); got != tt.want {
				t.Errorf("said %q, want %q", got, tt.want)
			}
			if wants, shown := s.Wants(slog.LevelInfo, "COLL"), strings.Contains(tt.want, "summed"); wants != shown {
				t.Errorf("Wants(INFO, COLL) is %v", wants)
			}
		})
	}
}

func TestCarillonLog(t *testing.T) {
	for value, want := range map[string]string{
		"debug": "born version plain trouble broken",
		"Info":  "born version plain trouble broken",
		"warn":  "trouble broken",
		"error": "broken",
		"off":   "",
	} {
		level, err := logsink.ParseLevel(value)
		if err != nil {
			t.Fatal(err)
		}
		s, out := newSink(t, logsink.Config{Level: level})
		everything(s.Logger())
		if got := said(out.String()); got != want {
			t.Errorf("%s: said %q, want %q", value, got, want)
		}
	}
}

func TestValuesThatAreNone(t *testing.T) {
	for name, parse := range map[string]func() error{
		"loud":  func() error { _, err := logsink.ParseLevel("loud"); return err },
		"FATAL": func() error { _, err := logsink.ParseNCCLDebug("FATAL"); return err },
		"xml":   func() error { _, err := logsink.ParseFormat("xml"); return err },
		"COLD":  func() error { _, err := logsink.ParseSubsystems("INIT,COLD"); return err },
		"":      func() error { _, err := logsink.ParseSubsystems(""); return err },
	} {
		if err := parse(); err == nil || !strings.Contains(err.Error(), "want ") {
			t.Errorf("%q: %v, want an error that says what is allowed", name, err)
		}
	}
}

func TestFormats(t *testing.T) {
	sc := oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: oteltrace.TraceID{1}, SpanID: oteltrace.SpanID{2},
	})
	ctx := oteltrace.ContextWithSpanContext(t.Context(), sc)
	s, out := newSink(t, logsink.Config{Version: true, Attrs: []slog.Attr{slog.Int(semconv.LogRank, 3)}})
	s.Logger().Log(ctx, logsink.LevelVersion, "hello", "a", 1)
	if want := "level=VERSION msg=hello rank=3 a=1 trace_id=01000000000000000000000000000000 " +
		"span_id=0200000000000000\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("text: %q, want %q at its end", out.String(), want)
	}
	s, out = newSink(t, logsink.Config{Format: logsink.JSON, Attrs: []slog.Attr{slog.Int(semconv.LogRank, 3)}})
	s.Logger().WarnContext(ctx, "hello", "a", 1)
	var line map[string]any
	if err := json.Unmarshal([]byte(out.String()), &line); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	if line["level"] != "WARN" || line["rank"] != 3.0 || line["trace_id"] != sc.TraceID().String() ||
		line["span_id"] != sc.SpanID().String() {
		t.Errorf("JSON: %v", line)
	}
}

func TestTheProgramsOwnHandler(t *testing.T) {
	var mine bytes.Buffer
	handler := slog.NewTextHandler(&mine, &slog.HandlerOptions{Level: slog.LevelInfo})
	s, out := newSink(t, logsink.Config{Level: logsink.LevelOff, Handler: handler, File: filepath.Join(t.TempDir(),
		"not made")})
	everything(s.Logger().With("more", 1))
	if got, want := said(mine.String()), "born version plain trouble broken"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	if out.String() != "" {
		t.Errorf("and on standard error %s", out.String())
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, fmt.Sprintf("log.%s.%d.100%%.%%x", strings.NewReplacer("/", "-", "%", "-").Replace(host),
		os.Getpid()))
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := logsink.Config{File: filepath.Join(dir, "log.%h.%p.100%%.%x")}
	s, out := newSink(t, cfg)
	everything(s.Logger())
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := said(string(b)), "born version plain trouble broken"; got != want ||
		strings.Contains(string(b), "old") {
		t.Errorf("the file has %q, want %q:\n%s", got, want, b)
	}
	if out.String() != "" {
		t.Errorf("and on standard error %s", out.String())
	}
	// With VERSION alone, no file is made.
	cfg.File, cfg.Level, cfg.Version = filepath.Join(dir, "none"), logsink.LevelOff, true
	s, out = newSink(t, cfg)
	everything(s.Logger())
	if got := said(out.String()); got != "version" {
		t.Errorf("VERSION: standard error has %q", got)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*none*")); len(files) != 0 {
		t.Errorf("VERSION made %v", files)
	}
}

func TestFileThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "no", "such"), dir, pipe} {
		s, out := newSink(t, logsink.Config{File: path, Level: slog.LevelWarn})
		s.Logger().Warn("later")
		for _, part := range []string{"NCCL_DEBUG_FILE", path, "level=WARN", "msg=later"} {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%s: standard error does not say %q:\n%s", path, part, out.String())
			}
		}
	}
}

// stuck is a terminal that blocks until it is released.
type stuck struct {
	buffer
	writing chan struct{} // gets a value with each write
	let     chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	s.writing <- struct{}{}
	<-s.let
	return s.buffer.Write(p)
}

func TestReadersNeverWaitForATerminal(t *testing.T) {
	out := &stuck{writing: make(chan struct{}, 1<<16), let: make(chan struct{})}
	s, _ := newSink(t, logsink.Config{Stderr: out})
	log := slog.New(s.Events())
	log.Info("first")
	<-out.writing // it is out of the queue
	const more = 3000
	for i := range more {
		log.Info("more", "i", i)
	}
	dropped, _ := s.Lost()
	if dropped == 0 || dropped >= more {
		t.Errorf("%d of %d lines were dropped", dropped, more)
	}
	close(out.let)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); uint64(lines) != 1+more-dropped {
		t.Errorf("%d lines were written and %d dropped, of %d", lines, dropped, 1+more)
	}
	log.Info("after the end")
	if got, _ := s.Lost(); got != dropped+1 {
		t.Errorf("a line after the end: %d dropped, before it %d", got, dropped)
	}
}

func TestCloseDoesNotWaitForEver(t *testing.T) {
	out := &stuck{writing: make(chan struct{}, 1<<16), let: make(chan struct{})}
	s, _ := newSink(t, logsink.Config{Stderr: out})
	slog.New(s.Events()).Info("first")
	<-out.writing
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("enough"))
	if err := s.Close(ctx); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("%v", err)
	}
	close(out.let)
}

func BenchmarkEvents(b *testing.B) {
	s := logsink.New(b.Context(), logsink.Config{Handler: slog.DiscardHandler})
	log := slog.New(s.Events())
	b.ReportAllocs()
	for b.Loop() {
		log.LogAttrs(b.Context(), slog.LevelInfo, "event", slog.Int("a", 1))
	}
	if err := s.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}
