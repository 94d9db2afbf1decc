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
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Config describes the process whose tape is projected, and what is made of it. Zero fields take the defaults that they
// name.
type Config struct {
	// Service, Version, Job, Host, PID and Rank become the resource of every span. They describe the process that wrote
	// the tape, which need not be the one that reads it. Rank is the process's rank in the job, negative if it isn't
	// known. Service defaults to "carillon"; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over all of them.
	Service, Version, Job, Host string
	PID, Rank                   int

	// Resource describes the process as its program does, for its own spans. What it says wins over all of the above;
	// nil says nothing.
	Resource *resource.Resource

	// Process is the model whose steps are observed. What it has open at the end is unfinished. Required.
	Process *model.Process

	// Wall turns a time of the tape (CLOCK_MONOTONIC, nanoseconds) into a time of day, as tape.Header.Wall does.
	// Required.
	Wall func(mono int64) time.Time

	// From leaves out the spans of what happened before it, on the tape's clock: those that the process of a tape that
	// is read again has exported itself. 0 leaves out none.
	From int64

	// Sent is until when the process of a tape that is read again says that it has sent all spans itself, on the tape's
	// clock: those are left out, and those of what was unfinished then and never ended. 0 if it doesn't say.
	Sent int64

	// Delivered is told until when, on the tape's clock, all spans of what had ended were taken by the exporter, each
	// time that this is known to be later; no more once a span was dropped or refused. It is called by the exporter's
	// goroutine and must not block. It needs Now. nil: not told.
	Delivered func(until int64)

	// Now reads the tape's clock. It dates the end of acts that Close finds open; nil means the time of the last event,
	// which is right for a tape whose process is gone.
	Now func() int64

	// SampleEvery keeps 1 in so many operations that ended well, the same ones on all ranks; failed, slow and stalled
	// ones are always kept. 0 means tape.DefaultSampleEvery, a negative number keeps none. A follower shows no more of
	// them than tape.Config.SampleEvery says.
	SampleEvery int

	// Slow is the duration from which an operation is slow; those that ObserveStall was told of are besides. 0 means
	// model.DefaultSlow.
	Slow time.Duration

	// Finding asks what is known of why an operation stalls: by its communicator and its number, tape.OpRecord.Seq,
	// which is 0 for an act that runs none. It is called for each span of a stall, by ObserveStall's goroutine, and
	// must not block. nil knows nothing.
	Finding func(comm lifecycle.CommID, seq uint64) (Finding, bool)

	// StoreTraces bounds the Store; 0 means DefaultStoreTraces.
	StoreTraces int

	// AlgorithmName names the algorithms of tape.OpRecord, which the runtime defines and a reader doesn't know; nil, or
	// "" for one, leaves them out. The Store calls it for its readers, too, also after Close.
	AlgorithmName func(uint8) string

	// OwnExport leaves it to the program to read the variables that name where spans go: they get to Processors and
	// Exporters alone.
	OwnExport bool

	// MustExport makes it an error of New that a variable which names where spans go can't be used. Else that is a
	// warning.
	MustExport bool

	// Processors receive the spans too, behind the store and the exporter. Their owner ends them: Close flushes them.
	Processors []sdktrace.SpanProcessor

	// Exporters receive them too, in batches, beside the exporter that the environment names and as it does: what one
	// doesn't take counts as failed. Their owner ends them.
	Exporters []sdktrace.SpanExporter

	// Logger hears when spans can't be exported; nil means slog.Default().
	Logger *slog.Logger
}

func (c *Config) setDefaults() {
	if c.Host == "" {
		c.Host, _ = os.Hostname()
	}
	c.Service = cmp.Or(c.Service, "carillon")
	c.PID = cmp.Or(c.PID, os.Getpid())
	c.SampleEvery = cmp.Or(c.SampleEvery, tape.DefaultSampleEvery)
	c.Slow = cmp.Or(c.Slow, model.DefaultSlow)
	c.Logger = cmp.Or(c.Logger, slog.Default())
}
