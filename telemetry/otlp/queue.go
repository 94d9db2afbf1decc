package otlp

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// Queue counts the items that wait in one of OpenTelemetry's batch processors, and those that are lost. A processor
// drops silently when its queue is full, so a Queue admits no more than fits.
type Queue struct {
	pending                   atomic.Int64
	exported, dropped, failed atomic.Uint64
	admitted                  atomic.Uint64

	// Abandoned ends with Abandon: nothing is exported after it.
	Abandoned context.Context
	// Abandon also ends the export in progress.
	Abandon context.CancelFunc
}

// Stats counts exported and lost items: spans or log records.
type Stats struct {
	Exported uint64 // the exporter has taken them
	Dropped  uint64 // they were not queued, because the queue was full
	Failed   uint64 // they were queued, but the exporter returned an error or was abandoned
}

// NewQueue makes an empty Queue.
func NewQueue() *Queue {
	q := &Queue{}
	q.Abandoned, q.Abandon = context.WithCancel(context.Background())
	return q
}

// Admit tells whether there is room for another item: fewer than room items wait. If not, it counts the item as
// dropped.
func (q *Queue) Admit(room int64) bool {
	if q.pending.Add(1) > room {
		q.pending.Add(-1)
		q.dropped.Add(1)
		return false
	}
	q.admitted.Add(1)
	return true
}

// Admitted counts the admitted items.
func (q *Queue) Admitted() uint64 { return q.admitted.Load() }

// Export calls export for n admitted items, which then leave the queue, and counts them. It returns export's error.
func (q *Queue) Export(ctx context.Context, n int, export func(context.Context) error) error {
	defer q.pending.Add(-int64(n))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.Abandoned, cancel)()
	err := q.Abandoned.Err()
	if err == nil {
		err = export(ctx)
	}
	if err != nil {
		q.failed.Add(uint64(n))
	} else {
		q.exported.Add(uint64(n))
	}
	return err
}

// Stats counts exported and lost items.
func (q *Queue) Stats() Stats {
	return Stats{Exported: q.exported.Load(), Dropped: q.dropped.Load(), Failed: q.failed.Load()}
}

// Outage is whether the last export to a collector failed, so that an outage is logged when it begins and when it ends,
// and not with each export. Several exporters may share one. The zero value is no outage.
type Outage struct{ failing, variables atomic.Bool }

// Changed takes the result of an export, and tells whether it began or ended an outage.
func (o *Outage) Changed(err error) bool { return o.failing.Swap(err != nil) != (err != nil) }

// Variables returns the logger for errors in the OTEL_* variables: log for the first exporter, and a discarding one for
// others, as they read the same variables. A nil Outage is that of an exporter that shares nothing.
func (o *Outage) Variables(log *slog.Logger) *slog.Logger {
	if o != nil && o.variables.Swap(true) {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
