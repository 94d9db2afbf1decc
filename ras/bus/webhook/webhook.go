package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/internal/push"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

const (
	// minBackoff and maxBackoff bound the time between two attempts, which doubles.
	minBackoff, maxBackoff = 500 * time.Millisecond, 30 * time.Second
	// giveUp bounds all attempts for one event.
	giveUp = 5 * time.Minute
	// MinSecret is the length of the shortest secret, in bytes.
	MinSecret = 16
)

// Config describes a Sink.
type Config struct {
	bus.SinkConfig
	// Name identifies this webhook in metrics and logs. Default: "webhook".
	Name string
	// URL is the receiver. Required. Only its host is ever logged.
	URL string
	// Secrets sign requests. Each request is signed with all of them, so that a secret can be replaced without losing
	// an event. Without any, requests aren't signed.
	Secrets []string
}

// Sink posts events to one receiver. It is a bus.Sink.
type Sink struct {
	bus.Sink
	log     *slog.Logger
	client  *push.Client
	signers []*standardwebhooks.Webhook
	failed  uint64 // given up since one was accepted
	warned  bool   // a retry was logged since one was accepted

	// aloneUntil is the time until which the receiver asked to be left alone. It holds for all events.
	aloneUntil time.Time
}

// New makes a Sink, which queues from now on and sends while Run runs. The error repeats neither the URL nor a secret.
func New(cfg Config) (*Sink, error) {
	client, err := push.New(cfg.URL, cfg.Transport)
	if err != nil {
		return nil, fmt.Errorf("webhook.Config.URL is %w", err)
	}
	cfg.Name = cmp.Or(cfg.Name, "webhook")
	s := &Sink{client: client, log: cmp.Or(cfg.Logger, slog.Default()).With(semconv.LabelSink, cfg.Name)}
	for i, secret := range cfg.Secrets {
		if len(secret) < MinSecret {
			return nil, fmt.Errorf("webhook.Config.Secrets[%d] has %d bytes: allowed are %d or more", i, len(secret),
				MinSecret)
		}
		signer, err := standardwebhooks.NewWebhookRaw([]byte(secret))
		if err != nil {
			return nil, fmt.Errorf("webhook: %w", err)
		}
		s.signers = append(s.signers, signer)
	}
	s.Sink = bus.NewSink(cfg.Bus, cfg.Name, cfg.Filter, s.deliver)
	return s, nil
}

// Run implements bus.Sink.
func (s *Sink) Run(ctx context.Context) error {
	defer s.client.Close()
	return s.Sink.Run(ctx)
}

// deliver sends an event until it is accepted or given up, but not before aloneUntil. It logs the first of several
// events in a row that are given up, and the end of the row.
func (s *Sink) deliver(ctx context.Context, ev *bus.Event) error {
	alone := time.NewTimer(time.Until(s.aloneUntil))
	defer alone.Stop()
	select {
	case <-alone.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := s.try(ctx, ev)
	switch {
	case err == nil && (s.failed > 0 || s.warned):
		s.log.Info("a webhook takes events again", "given_up", s.failed)
		s.failed, s.warned = 0, false
	case err != nil && ctx.Err() == nil:
		if s.failed == 0 {
			s.log.Warn("an event is given up: the webhook doesn't take it", "event", ev.ID, semconv.LogError, err)
		}
		s.failed++
	}
	return err
}

// try sends an event until it is accepted or there is no point in another attempt.
func (s *Sink) try(ctx context.Context, ev *bus.Event) error {
	body, err := ev.MarshalJSON()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, giveUp) // also for an attempt that hangs
	defer cancel()
	var last error
	attempts := 0
	attempt := func() (none struct{}, err error) {
		attempts++
		last = s.post(ctx, ev.ID, body)
		switch {
		case last == nil:
			return none, nil
		case !push.Temporary(last):
			return none, backoff.Permanent(last)
		case attempts > 1 && !s.warned && ctx.Err() == nil: // one failure may be chance
			s.warned = true
			s.log.Warn("a webhook doesn't take an event; it is tried again", "event", ev.ID, semconv.LogError, last)
		}
		if status, answered := errors.AsType[*push.StatusError](last); answered && status.RetryAfter > 0 {
			s.aloneUntil = time.Now().Add(status.RetryAfter) // an hour at most
			return none, &backoff.RetryAfterError{Duration: status.RetryAfter}
		}
		return none, last
	}
	policy := backoff.NewExponentialBackOff()
	policy.InitialInterval, policy.MaxInterval, policy.Multiplier = minBackoff, maxBackoff, 2
	_, _ = backoff.Retry(ctx, attempt, backoff.WithBackOff(policy), backoff.WithMaxElapsedTime(giveUp))
	return last
}

// post sends an event once. It is signed anew each time: receivers refuse old signatures.
func (s *Sink) post(ctx context.Context, id string, body []byte) error {
	now := time.Now()
	header := http.Header{}
	header.Set("Content-Type", "application/cloudevents+json")
	header.Set(standardwebhooks.HeaderWebhookID, id)
	header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	var signatures []string
	for _, signer := range s.signers {
		signature, err := signer.Sign(id, now, body)
		if err != nil {
			return fmt.Errorf("sign event %s: %w", id, err)
		}
		signatures = append(signatures, signature)
	}
	if len(signatures) > 0 {
		header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	}
	return s.client.Post(ctx, header, body)
}
