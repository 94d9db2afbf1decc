package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/internal/push"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Sink posts events to one receiver. It is a bus.Sink.
type Sink struct {
	cfg    Config
	client *push.Client
	sub    *bus.Subscription
	counts bus.Counts
	failed uint64 // given up since one was accepted
	warned bool   // that an event is tried again, since one was accepted

	// aloneUntil is how long the receiver asked to be left alone, whichever event is next.
	aloneUntil time.Time
}

// New makes a Sink, which queues from now on and sends while Run runs.
func New(cfg Config, opts ...Option) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.complete()
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return &Sink{
		cfg: cfg, client: push.New(cfg.URL, cfg.Timeout, cfg.TLS, o.transport),
		sub: cfg.Bus.Attach(bus.SubscriptionConfig{Filter: cfg.Filter, Queue: cfg.Queue, After: bus.FromStart}),
	}, nil
}

// Name implements bus.Sink.
func (s *Sink) Name() string { return s.cfg.Name }

// Stats implements bus.Sink.
func (s *Sink) Stats() bus.Stats { return s.counts.Stats(s.sub.Dropped()) }

// Run implements bus.Sink.
func (s *Sink) Run(ctx context.Context) error {
	defer s.client.Close()
	defer s.sub.Close()
	return bus.Each(ctx, s.sub, func(ev *bus.Event) error {
		if !s.leaveAlone(ctx) {
			return nil
		}
		err := s.deliver(ctx, ev)
		if ctx.Err() == nil || err == nil {
			s.account(ev, err)
		}
		return nil
	})
}

// leaveAlone waits until the receiver may be asked again: the event before, which it asked for more time than an event
// has, is given up, and the next one is no reason to ask sooner. It reports whether ctx goes on.
func (s *Sink) leaveAlone(ctx context.Context) bool {
	t := time.NewTimer(time.Until(s.aloneUntil))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// account counts an event, and logs the first of a row that is given up, and the end of the row.
func (s *Sink) account(ev *bus.Event, err error) {
	switch {
	case err == nil && (s.failed > 0 || s.warned):
		s.cfg.Logger.Info("a webhook takes events again", semconv.LabelSink, s.cfg.Name, "given_up", s.failed)
		s.failed, s.warned = 0, false
	case err != nil && s.failed == 0:
		s.cfg.Logger.Warn("an event is given up: the webhook doesn't take it", semconv.LabelSink, s.cfg.Name,
			"event", ev.ID, semconv.LogError, err)
	}
	if err != nil {
		s.failed++
	}
	switch {
	case ev.Notice():
	case err != nil:
		s.counts.Failed(1)
	default:
		s.counts.Pushed(1)
	}
}

// deliver sends an event until it is accepted or given up.
func (s *Sink) deliver(ctx context.Context, ev *bus.Event) error {
	header, body, err := s.encode(ctx, ev)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.GiveUp) // also for an attempt that hangs
	defer cancel()
	var last error
	attempts := 0
	attempt := func() (struct{}, error) {
		attempts++
		sign(header, ev.ID, time.Now(), body, s.cfg.Secrets) // anew: receivers refuse old signatures
		err := s.client.Post(ctx, header, body)
		if err == nil {
			return struct{}{}, nil
		}
		last = err
		if !push.Temporary(err) {
			return struct{}{}, backoff.Permanent(err)
		}
		if attempts > 1 && !s.warned && ctx.Err() == nil { // one failure may be chance
			s.warned = true
			s.cfg.Logger.Warn("a webhook doesn't take an event; it is tried again", semconv.LabelSink, s.cfg.Name,
				"event", ev.ID, semconv.LogError, err)
		}
		var status *push.StatusError
		if errors.As(err, &status) && status.RetryAfter > 0 {
			s.aloneUntil = time.Now().Add(status.RetryAfter) // an hour at most
			return struct{}{}, &backoff.RetryAfterError{Duration: status.RetryAfter}
		}
		return struct{}{}, err
	}
	policy := backoff.NewExponentialBackOff()
	policy.InitialInterval, policy.MaxInterval, policy.Multiplier = s.cfg.MinBackoff, s.cfg.MaxBackoff, 2
	if _, err := backoff.Retry(ctx, attempt, backoff.WithBackOff(policy),
		backoff.WithMaxElapsedTime(s.cfg.GiveUp)); err != nil {
		return last
	}
	return nil
}

// encode lays an event out as the CloudEvents SDK does.
func (s *Sink) encode(ctx context.Context, ev *bus.Event) (http.Header, []byte, error) {
	ctx = binding.WithForceStructured(ctx)
	if s.cfg.Mode == Binary {
		ctx = binding.WithForceBinary(ctx)
	}
	ce := ev.CloudEvent()
	req := http.Request{Header: http.Header{}}
	if err := cehttp.WriteRequest(ctx, binding.ToMessage(&ce), &req); err != nil {
		return nil, nil, fmt.Errorf("event %s: %w", ev.ID, err)
	}
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, nil, fmt.Errorf("event %s: %w", ev.ID, err)
		}
	}
	for name, values := range req.Header {
		if strings.HasPrefix(strings.ToLower(name), "ce-") {
			for i := range values {
				values[i] = escape(values[i])
			}
		}
	}
	for name, values := range s.cfg.Header {
		req.Header[name] = values
	}
	return req.Header, body, nil
}

// escape writes a value as CloudEvents has it in HTTP headers, which the SDK leaves to its user: percent-encoded but
// for printable ASCII (section 3.1.3.2 of the binding).
func escape(value string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(value) {
		if c > ' ' && c < 0x7f && c != '"' && c != '%' {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}
