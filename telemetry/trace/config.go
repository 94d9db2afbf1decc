package trace

import (
	"cmp"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Config describes the process whose tape is projected, and where its spans go. Zero fields take the defaults named in
// their comments.
type Config struct {
	// Version, Job, Host, PID and Rank become the resource of every span, with the service name "carillon". They
	// describe the process that wrote the tape, which need not be the one that reads it. Rank is the process's rank in
	// the job, negative if unknown. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override all of them.
	Version, Job, Host string
	PID, Rank          int

	// Resource is the program's own description of the process. It overrides all of the above; nil is none.
	Resource *resource.Resource

	// Process is the model whose steps are observed. Its acts and operations that are open at the end are unfinished.
	// Required.
	Process *model.Process

	// Wall turns a time of the tape (CLOCK_MONOTONIC, nanoseconds) into a time of day, as tape.Header.Wall does.
	// Required.
	Wall func(mono int64) time.Time

	// From is for a tape that is read again: spans of events before it, on the tape's clock, are left out. 0 leaves out
	// none.
	From int64

	// Sent is for a tape that is read again: the time, on the tape's clock, until which its process has sent all spans
	// itself. These spans are left out, and so are those of acts and operations that were unfinished then and never
	// ended. 0 if unknown.
	Sent int64

	// Delivered is called with the time, on the tape's clock, until which all spans have been exported, whenever that
	// time advances, but never again once a span was dropped or refused. The exporter's goroutine calls it, so it must
	// not block. It needs Now; nil is none.
	Delivered func(until int64)

	// Outage is shared by the Projectors of a process that export to the same collector, so that outages, and errors in
	// the variables, are logged once. nil: this Projector's own.
	Outage *otlp.Outage

	// Now reads the tape's clock. It dates the end of acts that Close finds open; nil means the time of the last event,
	// which is right for a tape whose process is gone.
	Now func() int64

	// SampleEvery is N to keep 1 in N operations that ended well, the same ones on all ranks; failed, slow and stalled
	// ones are always kept. 0 means tape.DefaultSampleEvery, a negative number keeps none. A follower gets no more of
	// them than tape.Config.SampleEvery lets through.
	SampleEvery int

	// Slow is the duration from which an operation is slow; operations reported to ObserveStall are slow, too. 0 means
	// model.DefaultSlow.
	Slow time.Duration

	// Finding returns why an operation stalls, if known. seq is its number, tape.OpRecord.Seq; 0 for an act that runs
	// no operation. ObserveStall's goroutine calls it for each span of a stall, so it must not block. nil is none.
	Finding func(comm lifecycle.CommID, seq uint64) (Finding, bool)

	// StoreTraces bounds the Store; 0 means DefaultStoreTraces.
	StoreTraces int

	// AlgorithmName names the algorithms of tape.OpRecord, which the runtime defines and a reader doesn't know; nil, or
	// "" for an algorithm, leaves it out. The Store also calls it, for its readers, even after Close.
	AlgorithmName func(uint8) string

	// OwnExport ignores the variables that name an exporter: spans only go to Processors and Exporters.
	OwnExport bool

	// MustExport makes an invalid variable that names an exporter an error of New instead of a warning.
	MustExport bool

	// Processors get the spans, too, after the store and the exporter. Their owner ends them; Close flushes them.
	Processors []sdktrace.SpanProcessor

	// Exporters get the spans in batches, as the exporter that the environment names does: spans that an exporter
	// refuses count as failed. Their owner ends them.
	Exporters []sdktrace.SpanExporter

	// Logger gets a line when spans can't be exported; nil means slog.Default().
	Logger *slog.Logger

	// Failed, if not nil, is told why spans can't be exported, in place of Logger. An export that is still going on
	// when Close returns may call it later.
	Failed func(error)
}

func (c *Config) setDefaults() {
	if c.Host == "" {
		c.Host, _ = os.Hostname()
	}
	c.PID = cmp.Or(c.PID, os.Getpid())
	c.SampleEvery = cmp.Or(c.SampleEvery, tape.DefaultSampleEvery)
	c.Slow = cmp.Or(c.Slow, model.DefaultSlow)
	c.Logger = cmp.Or(c.Logger, slog.Default())
}
