package alertmanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/internal/push"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Sink keeps Alertmanagers informed. It is a bus.Sink.
type Sink struct {
	cfg     Config
	clients []*push.Client
	sub     *bus.Subscription
	table   table
	counts  bus.Counts
	full    atomic.Uint64 // events for which the table had no room
	failing bool          // the last attempt
	behind  bool          // events were missed, and what holds was not asked for since
}

// New makes a Sink, which queues from now on and sends while Run runs.
func New(cfg Config, opts ...Option) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	s := &Sink{cfg: cfg.complete()}
	s.table = table{cfg: &s.cfg, open: map[string]*tracked{}}
	for _, address := range cfg.URLs {
		s.clients = append(s.clients, push.New(endpoint(address), s.cfg.Timeout, cfg.TLS, o.transport))
	}
	s.sub = cfg.Bus.Attach(bus.SubscriptionConfig{Filter: cfg.Filter, Queue: cfg.Queue, After: bus.FromStart})
	return s, nil
}

// Name implements bus.Sink.
func (*Sink) Name() string { return "alertmanager" }

// Stats implements bus.Sink. An event is pushed when all Alertmanagers have accepted its alert, and has failed when its
// alert is forgotten before that, as at the end of Run.
func (s *Sink) Stats() bus.Stats { return s.counts.Stats(s.sub.Dropped() + s.full.Load()) }

// Run implements bus.Sink. When the Bus is closed it tries once to send what is left; open alerts stay until their
// endsAt.
func (s *Sink) Run(ctx context.Context) error {
	defer func() {
		s.sub.Close()
		for _, c := range s.clients {
			c.Close()
		}
		for _, a := range s.table.open {
			s.counts.Failed(a.events)
		}
		for _, a := range s.table.ended {
			s.counts.Failed(a.events)
		}
	}()
	for {
		closed, err := s.gather(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		now := time.Now()
		if closed {
			s.table.refused(s.table.ended, now) // what waits for another attempt has it now
			for _, a := range s.table.open {
				if a.events > 0 {
					a.due = now
				}
			}
		}
		if err := s.send(ctx, now); err != nil {
			return err
		}
		if closed {
			return nil
		}
	}
}

// gather waits until an alert is due, and takes all events that there are until then.
func (s *Sink) gather(ctx context.Context) (closed bool, err error) {
	for {
		wait, cancel := ctx, context.CancelFunc(func() {})
		if next := s.table.next(); !next.IsZero() {
			wait, cancel = context.WithDeadline(ctx, next)
		}
		ev, err := s.sub.Next(wait)
		late := wait.Err() != nil
		cancel()
		switch {
		case err == nil:
			if ev.Notice() {
				s.behind = true
			} else if !s.table.apply(time.Now(), ev, 1) {
				s.full.Add(1)
			}
			if s.sub.Waiting() {
				continue // one request for all
			}
			if s.behind {
				s.catchUp()
			}
			if next := s.table.next(); !next.IsZero() && !time.Now().Before(next) {
				return false, nil
			}
		case errors.Is(err, bus.ErrClosed):
			return true, nil
		case late:
			return false, nil
		default:
			return false, err
		}
	}
}

// catchUp asks for what holds, when events were missed, such as the end of a condition.
func (s *Sink) catchUp() {
	s.behind = false
	open := slices.DeleteFunc(s.cfg.Bus.Open(), func(o *bus.Event) bool { return !s.cfg.Filter.Match(o) })
	s.full.Add(uint64(s.table.catchUp(time.Now(), open)))
}

func (s *Sink) send(ctx context.Context, now time.Time) error {
	due := s.table.due(now)
	for len(due) > 0 {
		batch := due[:min(len(due), maxBatch)]
		due = due[len(batch):]
		alerts := make([]alert, len(batch))
		for i, a := range batch {
			alerts[i] = a.alert
		}
		body, err := json.Marshal(alerts)
		if err != nil {
			return fmt.Errorf("alertmanager: %w", err)
		}
		err = s.post(ctx, body)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if !s.failing {
				s.cfg.Logger.Warn("alerts can't be sent; they will be tried again", semconv.LabelSink, s.Name(),
					semconv.LogError, err)
			}
			s.failing = true
			s.table.refused(batch, time.Now().Add(s.cfg.Retry))
			continue
		}
		if s.failing {
			s.failing = false
			s.cfg.Logger.Info("alerts are accepted again", semconv.LabelSink, s.Name())
		}
		for _, a := range batch {
			s.counts.Pushed(a.events)
		}
		s.table.accepted(batch)
	}
	return nil
}

func (s *Sink) post(ctx context.Context, body []byte) error {
	header := s.cfg.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	errs := make([]error, len(s.clients))
	var all sync.WaitGroup
	for i, c := range s.clients {
		all.Go(func() { errs[i] = c.Post(ctx, header, body) })
	}
	all.Wait()
	return errors.Join(errs...)
}
