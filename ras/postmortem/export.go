package postmortem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// ExportOptions say which spans are sent, and how. The zero value is a good one.
type ExportOptions struct {
	// Window is how long before its last record a process's spans count as not exported: it exports in batches, a
	// second apart, and a collector may have been slow. 5 s if 0. Spans that the tape says were delivered are left out.
	Window time.Duration
	// All sends all spans that the tapes have, also those of processes that ended in order.
	All bool
	// Algorithm names the algorithms of operations, which the runtime defines; nil leaves them out.
	Algorithm func(uint8) string
	// Logger hears of variables that can't be used; nil means slog.Default().
	Logger *slog.Logger

	outage *otlp.Outage // shared by the exporters of all tapes
}

// exportWindow is the default of ExportOptions.Window.
const exportWindow = 5 * time.Second

// Exported counts the spans of an export.
type Exported struct {
	Processes int    `json:"processes"` // of which spans were sent
	Skipped   int    `json:"skipped"`   // that exported their own spans, or still do
	Spans     uint64 `json:"spans"`     // taken by the backend
	Failed    uint64 `json:"failed"`    // not taken
	Why       error  `json:"-"`         // why spans were not taken; nil if all were
	Untried   int    `json:"untried"`   // processes that were not begun when ctx ended
}

// Export sends the spans that dead processes could not send themselves to where the OTEL_* variables say, with the ids
// and the resource that the processes would have used. Acts and operations that were open at the end are spans with the
// error "unfinished" that last until others noticed the end. Left out are processes that are alive, as they export
// themselves, and spans that a dead one sent, as its tape says. Export reads the tapes again, one process at a time,
// and blocks until all is sent or ctx ends. The error is that of the exporter's configuration, or of a tape that can't
// be read any more; refused spans are counted.
func (r *Report) Export(ctx context.Context, opts ExportOptions) (Exported, error) {
	var total Exported
	var errs []error
	opts.outage = new(otlp.Outage)
	for _, p := range r.procs {
		state := p.state()
		if state == StateAlive || state == StateClosed && !opts.All {
			total.Skipped++
			continue
		}
		if ctx.Err() != nil {
			total.Untried++
			continue
		}
		stats, err := export(ctx, p, p.gone(r.End), &opts, &total)
		if err != nil {
			errs = append(errs, fmt.Errorf("postmortem: spans of %s: %w", words.Line(p.path), err))
			continue
		}
		if (p.header.Exported != 0 || p.header.Delivered != 0) && stats == (trace.Stats{}) {
			total.Skipped++
			continue
		}
		total.Processes++
	}
	return total, errors.Join(errs...)
}

// export sends the spans of one process, which was gone at a time of its tape's clock. If its launcher saw the end,
// that time is used instead: all processes that may send the spans know it, and so send equal spans. It adds the spans
// to total.
func export(ctx context.Context, p *process, gone int64, opts *ExportOptions, total *Exported,
) (stats trace.Stats, err error) {
	t, _, err := tape.OpenCut(p.path)
	if err != nil {
		return stats, err
	}
	defer t.Close() //nolint:errcheck // only read from
	var why atomic.Pointer[error]
	h := t.Header()
	gone = cmp.Or(p.end.seen, gone)
	cfg := trace.Config{
		Process: model.New(p.limits()), Version: h.Version, Job: h.Job, Host: h.Host,
		PID: h.PID, Rank: p.rank, Wall: h.Wall, Now: func() int64 { return gone }, Slow: h.SlowAfter,
		AlgorithmName: opts.Algorithm, StoreTraces: 1, MustExport: true, Logger: opts.Logger,
		Outage: opts.outage, Failed: func(err error) { why.CompareAndSwap(nil, &err) },
	}
	if !opts.All {
		cfg.From, cfg.Sent = max(p.recorded-int64(cmp.Or(opts.Window, exportWindow)), h.Delivered+1), h.Exported
	}
	projector, err := trace.New(ctx, cfg)
	if err != nil {
		return trace.Stats{}, err
	}
	err = errors.Join(replay(ctx, p, t, cfg.Process, projector), projector.Close(ctx))
	stats = projector.Stats()
	total.Spans += stats.Exported
	total.Failed += stats.Failed + stats.Dropped
	if failed := why.Load(); failed != nil && total.Why == nil {
		total.Why = *failed
	}
	return stats, err
}

// flushEvery is the number of events between two flushes: fewer than fit into the export queue.
const flushEvery = 512

// replay feeds the tape to the projector, and then ends the spans that are open at its end.
func replay(ctx context.Context, p *process, t *tape.Reader, m *model.Process, projector *trace.Projector) error {
	n := 0
	for ev, err := range t.Events() {
		if err != nil {
			return err
		}
		step := m.Apply(&ev)
		projector.Observe(&step)
		if n++; n%flushEvery == 0 {
			if err := projector.Flush(ctx); err != nil {
				return err
			}
		}
	}
	m.Look(p.slots, nil)
	projector.Unfinished()
	return nil
}
