package logsink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// flushTimeout bounds how long Close waits for a terminal or a collector.
const flushTimeout = 2 * time.Second

// everyLevel is below all levels.
const everyLevel = slog.Level(-1 << 30)

// Config says what is logged, and where. Zero fields take the defaults named in their comments.
type Config struct {
	// Level is the lowest level that is logged here; a collector gets INFO in any case. The zero value is INFO.
	Level slog.Level
	// Version shows LevelVersion even if it is below Level.
	Version bool
	// Subsystems are the subsystems whose lines below WARN are shown; nil are the usual ones.
	Subsystems Subsystems

	// Handler gets the lines of all levels in place of a file or standard error.
	Handler slog.Handler
	// File is the file for lines: %h stands for the host, %p for the pid, %% for a %. If it is empty or can't be
	// opened, which is logged, lines go to standard error.
	File string
	// Format is the format of lines in File or on standard error. The zero value is Text.
	Format Format
	// Stderr replaces standard error; nil means os.Stderr.
	Stderr io.Writer

	// Attrs are on every line.
	Attrs []slog.Attr

	// Resource describes the process to a collector; nil is OpenTelemetry's default.
	Resource *resource.Resource
	// Release is Carillon's version, which a collector gets as the instrumentation version.
	Release string
}

// Sink writes log lines. Its methods may be called from any goroutine. The caller of New closes it.
type Sink struct {
	cfg    Config
	direct slog.Handler
	events slog.Handler
	local  *filter
	export *gate // nil: nothing is exported
	queue  *queue
	file   *file // nil if there is none
}

// New opens a Sink. If a file or an exporter can't be opened, that is a warning that names the variable, not an error.
func New(ctx context.Context, cfg Config) *Sink {
	s := &Sink{cfg: cfg, queue: newQueue()}
	handler, unopened := s.open()
	s.local = &filter{next: handler, least: cfg.Level, version: cfg.Version, subsystems: cfg.Subsystems}
	if cfg.Handler != nil {
		s.local.least = everyLevel
	}
	alone := slog.New(s.local.WithAttrs(cfg.Attrs))
	if unopened != nil {
		alone.Warn("log lines go to standard error: NCCL_DEBUG_FILE can't be written", semconv.LogError, unopened)
	}
	s.direct = s.local
	s.events = queuing{s.local, s.queue}
	var err error
	if s.export, err = newExport(ctx, &cfg, alone); err != nil {
		alone.Warn("log records are not exported", semconv.LogError, err)
	}
	if s.export != nil {
		remote := &filter{
			next: s.export.handler(cfg.Release), least: min(cfg.Level, slog.LevelInfo), subsystems: cfg.Subsystems,
			remote: true,
		}
		s.direct = slog.NewMultiHandler(s.direct, remote)
		s.events = slog.NewMultiHandler(s.events, remote)
	}
	s.direct, s.events = s.direct.WithAttrs(cfg.Attrs), s.events.WithAttrs(cfg.Attrs)
	return s
}

// open makes the local handler, and returns why the file was not opened.
func (s *Sink) open() (slog.Handler, error) {
	cfg := &s.cfg
	if cfg.Handler != nil {
		return cfg.Handler, nil
	}
	console := s.handler(cmp.Or[io.Writer](cfg.Stderr, os.Stderr))
	if cfg.File == "" || cfg.Level >= LevelOff { // with VERSION alone NCCL writes no file
		return console, nil
	}
	host, _ := os.Hostname()
	f, err := open(expand(cfg.File, host, os.Getpid()))
	if err != nil {
		return console, err
	}
	s.file = &file{File: f, failed: func(err error) {
		slog.New(console.WithAttrs(cfg.Attrs)).Warn("log lines are lost: NCCL_DEBUG_FILE can't be written",
			semconv.LogError, err)
	}}
	return s.handler(s.file), nil
}

func (s *Sink) handler(out io.Writer) slog.Handler {
	opts := &slog.HandlerOptions{Level: everyLevel, ReplaceAttr: levelNames}
	if s.cfg.Format == JSON {
		return slog.NewJSONHandler(out, opts)
	}
	return slog.NewTextHandler(out, opts)
}

// Logger logs before it returns.
func (s *Sink) Logger() *slog.Logger { return slog.New(s.direct) }

// Local logs only here, for a caller that sends its own records to the collector.
func (s *Sink) Local() *slog.Logger { return slog.New(s.local.WithAttrs(s.cfg.Attrs)) }

// Collector sends records only to the collector; nil if nothing is exported.
func (s *Sink) Collector() log.Logger {
	if s.export == nil {
		return nil
	}
	return s.export.provider.Logger(semconv.ScopeName, log.WithInstrumentationVersion(s.cfg.Release),
		log.WithSchemaURL(semconv.SchemaURL))
}

// Events never blocks: it queues lines, and drops them when the queue is full.
func (s *Sink) Events() slog.Handler { return s.events }

// Wants tells whether lines of that level and subsystem are logged.
func (s *Sink) Wants(level slog.Level, subsystem string) bool {
	if level < slog.LevelWarn && !s.cfg.Subsystems.Has(subsystem) {
		return false
	}
	return s.direct.Enabled(context.Background(), level)
}

// VersionLevel is the level for the line with the version, according to NCCL_DEBUG.
func (s *Sink) VersionLevel() slog.Level {
	if s.cfg.Version {
		return LevelVersion
	}
	return slog.LevelInfo
}

// Lost counts the lost records: those for the local handler, lost by a full queue or in the file, and those for the
// collector, lost by a full queue or in the export.
func (s *Sink) Lost() (local, export uint64) {
	local = s.queue.dropped.Load()
	if s.file != nil {
		local += s.file.lost.Load()
	}
	if s.export != nil {
		export = s.export.lost()
	}
	return local, export
}

// Flush writes and exports the queued records, until ctx ends. Logging goes on.
func (s *Sink) Flush(ctx context.Context) error {
	exported := make(chan error, 1)
	if s.export == nil {
		exported <- nil
	} else { // concurrently: a terminal that hangs must not use up the time for the collector
		go func() { exported <- s.export.ForceFlush(ctx) }()
	}
	return errors.Join(s.queue.flush(ctx), <-exported)
}

// Close writes and exports the queued records, for two seconds at most and not longer than ctx, and closes the file.
// Logger still works if it writes to standard error or to the program's handler. Records that could not be exported are
// a warning, not an error.
func (s *Sink) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	var errs []error
	if err := s.queue.close(ctx); err != nil {
		errs = append(errs, fmt.Errorf("log lines were not all written: %w", err))
	}
	if s.export != nil {
		if err := s.export.close(ctx); err != nil {
			s.Local().Warn("log records were not all exported before the end", semconv.LogError, err)
		}
	}
	if s.file != nil {
		if err := s.file.Close(); !errors.Is(err, os.ErrClosed) { // closed twice
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
