package alertmanager

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/model"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/internal/push"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// DefaultResend is Config.Resend's default.
const DefaultResend = time.Minute

// Config describes a Sink. Its Filter chooses the events that are alerts; without Least: bus.Warning, processes that
// leave in order are alerts, too.
type Config struct {
	bus.SinkConfig
	// URLs are the Alertmanagers, all of one cluster, without /api/v2/alerts. At least one. Only their hosts are ever
	// logged.
	URLs []string
	// Resend is how often open alerts are sent again; after a failure the next attempt comes after a twelfth of it. 0
	// means DefaultResend.
	Resend time.Duration
}

// Sink keeps Alertmanagers informed. It is a bus.Sink.
type Sink struct {
	cfg     Config
	clients []*push.Client
	sub     *bus.Subscription
	table   table
	counts  bus.Counts
	full    atomic.Uint64 // events for which the table had no room
	failing bool          // the last attempt failed
	behind  bool          // events were missed, and the table was not corrected since
}

// New makes a Sink, which queues from now on and sends while Run runs. The error repeats no URL.
func New(cfg Config) (*Sink, error) {
	if cfg.Resend < 0 {
		return nil, fmt.Errorf("alertmanager.Config.Resend is %v: allowed are 0 and more", cfg.Resend)
	}
	cfg.Resend, cfg.Logger = cmp.Or(cfg.Resend, DefaultResend), cmp.Or(cfg.Logger, slog.Default())
	s := &Sink{cfg: cfg}
	s.table = newTable(&s.cfg)
	for i, address := range cfg.URLs {
		client, err := push.New(strings.TrimRight(address, "/")+"/api/v2/alerts", cfg.Transport)
		if err != nil {
			return nil, fmt.Errorf("alertmanager.Config.URLs[%d] is %w", i, err)
		}
		s.clients = append(s.clients, client)
	}
	if len(s.clients) == 0 {
		return nil, errors.New("alertmanager.Config.URLs is empty: allowed are one or more addresses")
	}
	s.sub = cfg.Bus.Attach(cfg.Filter, bus.FromStart)
	return s, nil
}

// Name implements bus.Sink.
func (*Sink) Name() string { return "alertmanager" }

// Stats implements bus.Sink. An event counts as pushed when all Alertmanagers have accepted its alert, and as failed if
// its alert is forgotten before that, as at the end of Run.
func (s *Sink) Stats() bus.Stats { return s.counts.Stats(s.sub.Dropped() + s.full.Load()) }

// Run implements bus.Sink. When the Bus is closed it tries once to send what is left; open alerts stay until their
// endsAt.
func (s *Sink) Run(ctx context.Context) error {
	defer func() {
		s.sub.Close()
		for _, c := range s.clients {
			c.Close()
		}
		for _, a := range s.table.alerts {
			s.counts.Failed.Add(a.events)
		}
	}()
	for {
		closed := s.gather(ctx)
		if ctx.Err() != nil {
			return nil
		}
		now := time.Now()
		if closed {
			s.table.hurry(now)
		}
		if err := s.send(ctx, now); err != nil || closed {
			return err
		}
	}
}

// gather takes events until an alert is due, the Bus is closed or ctx ends.
func (s *Sink) gather(ctx context.Context) (closed bool) {
	for {
		next := s.table.next()
		wait, cancel := ctx, context.CancelFunc(func() {})
		if !next.IsZero() {
			wait, cancel = context.WithDeadline(ctx, next)
		}
		ev, err := s.sub.Next(wait)
		cancel()
		if err != nil {
			return errors.Is(err, bus.ErrClosed)
		}
		if ev.Notice() {
			s.behind = true
		} else if !s.table.apply(time.Now(), ev, 1) {
			s.full.Add(1)
		}
		if s.sub.Waiting() {
			continue // one request for all
		}
		if s.behind { // the end of a condition may have been missed
			s.behind = false
			open := slices.DeleteFunc(s.cfg.Bus.Open(), func(o *bus.Event) bool { return !s.cfg.Filter.Match(o) })
			s.full.Add(s.table.catchUp(time.Now(), open))
		}
		if next := s.table.next(); !next.IsZero() && !time.Now().Before(next) {
			return false
		}
	}
}

// send sends the alerts that are due. Refused ones are due again after a while.
func (s *Sink) send(ctx context.Context, now time.Time) error {
	for batch := range slices.Chunk(s.table.due(now), maxBatch) {
		alerts := make([]model.Alert, len(batch))
		for i, a := range batch {
			alerts[i] = a.Alert
		}
		body, err := json.Marshal(alerts)
		if err != nil {
			return fmt.Errorf("alertmanager: %w", err)
		}
		err = s.post(ctx, body)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			s.counts.Pushed.Add(s.table.accepted(batch))
			if s.failing {
				s.cfg.Logger.Info("alerts are accepted again", semconv.LabelSink, s.Name())
			}
		default:
			s.counts.Failed.Add(s.table.refused(batch, time.Now().Add(s.cfg.Resend/retries)))
			if !s.failing {
				s.cfg.Logger.Warn("alerts can't be sent; they will be tried again", semconv.LabelSink, s.Name(),
					semconv.LogError, err)
			}
		}
		s.failing = err != nil
	}
	return nil
}

func (s *Sink) post(ctx context.Context, body []byte) error {
	errs := make([]error, len(s.clients))
	var all sync.WaitGroup
	for i, c := range s.clients {
		all.Go(func() { errs[i] = c.Post(ctx, http.Header{"Content-Type": {"application/json"}}, body) })
	}
	all.Wait()
	return errors.Join(errs...)
}
