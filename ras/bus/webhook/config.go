package webhook

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/internal/push"
)

// Defaults of a Config.
const (
	DefaultTimeout    = 10 * time.Second
	DefaultGiveUp     = 5 * time.Minute
	DefaultMinBackoff = 500 * time.Millisecond
	DefaultMaxBackoff = 30 * time.Second
)

// minSecret is the shortest secret, in bytes.
const minSecret = 16

// Mode is how an event is laid out in a request.
type Mode uint8

// The modes.
const (
	Structured Mode = iota // the body is the event with its envelope, application/cloudevents+json
	Binary                 // the body is the event's data, the envelope is in ce- headers
)

// Config describes a Sink. Zero fields take the defaults that they name.
type Config struct {
	// Bus is where the events come from. Required.
	Bus *bus.Bus
	// Name tells this webhook from others in metrics and logs. Default: "webhook".
	Name string
	// URL is the receiver. Required. Only its host is ever logged.
	URL  string
	Mode Mode
	// Secrets sign requests, each of them, so that secrets can be replaced without losing an event. None: requests are
	// not signed. They are never sent.
	Secrets [][]byte
	// Header is sent along, for instance Authorization.
	Header http.Header
	Filter bus.Filter
	// Queue is how many events wait; 0 means the Bus's.
	Queue int
	// Timeout bounds one attempt. 0 means DefaultTimeout.
	Timeout time.Duration
	// GiveUp bounds all attempts for one event. 0 means DefaultGiveUp.
	GiveUp time.Duration
	// MinBackoff and MaxBackoff bound the time between two attempts, which doubles. 0 means DefaultMinBackoff and
	// DefaultMaxBackoff.
	MinBackoff, MaxBackoff time.Duration
	// TLS is how the receiver is verified and the client identifies itself; nil means the system's roots.
	TLS *tls.Config
	// Logger hears when an event was refused twice or is given up, and when one is accepted again. nil means
	// slog.Default().
	Logger *slog.Logger
}

// Option changes what a test or an unusual network needs to.
type Option func(*options)

type options struct{ transport http.RoundTripper }

// WithTransport sends requests through t; Config.TLS is not used then.
func WithTransport(t http.RoundTripper) Option { return func(o *options) { o.transport = t } }

func (c Config) complete() Config {
	if c.Name == "" {
		c.Name = "webhook"
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.GiveUp == 0 {
		c.GiveUp = DefaultGiveUp
	}
	if c.MinBackoff == 0 {
		c.MinBackoff = DefaultMinBackoff
	}
	if c.MaxBackoff == 0 {
		c.MaxBackoff = max(DefaultMaxBackoff, c.MinBackoff)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate names every field that has a value that is not allowed. It repeats neither the URL nor a secret.
func (c Config) Validate() error {
	c = c.complete()
	var errs []error
	if c.Bus == nil {
		errs = append(errs, errors.New("webhook.Config.Bus is nil: allowed is a Bus"))
	}
	if err := push.CheckURL(c.URL); err != nil {
		errs = append(errs, fmt.Errorf("webhook.Config.URL is %w", err))
	}
	if c.Mode > Binary {
		errs = append(errs, fmt.Errorf("webhook.Config.Mode is %d: allowed are Structured and Binary", c.Mode))
	}
	for i, secret := range c.Secrets {
		if len(secret) < minSecret {
			errs = append(errs, fmt.Errorf("webhook.Config.Secrets[%d] has %d bytes: allowed are %d or more", i, len(secret),
				minSecret))
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Timeout", c.Timeout}, {"GiveUp", c.GiveUp}, {"MinBackoff", c.MinBackoff}, {"MaxBackoff", c.MaxBackoff}} {
		if d.value < time.Millisecond || d.value > 24*time.Hour {
			errs = append(errs, fmt.Errorf("webhook.Config.%s is %v: allowed are 1ms to 24h", d.name, d.value))
		}
	}
	if c.MinBackoff > c.MaxBackoff {
		errs = append(errs, fmt.Errorf("webhook.Config.MinBackoff is %v, more than MaxBackoff, %v", c.MinBackoff,
			c.MaxBackoff))
	}
	return errors.Join(errs...)
}
