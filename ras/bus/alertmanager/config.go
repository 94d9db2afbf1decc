package alertmanager

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/internal/push"
)

// Defaults of a Config.
const (
	DefaultResend  = time.Minute
	DefaultHold    = 5 * time.Minute
	DefaultTimeout = 10 * time.Second
	DefaultRetry   = 5 * time.Second
)

// Config describes a Sink. Zero fields take the defaults that they name.
type Config struct {
	// Bus is where the events come from. Required.
	Bus *bus.Bus
	// URLs are the Alertmanagers, all of one cluster, without /api/v2/alerts. At least one. Only their hosts are ever
	// logged.
	URLs []string
	// Labels are on every alert, for instance a cluster's name; those of the event win.
	Labels map[string]string
	// Runbooks is what runbook_url begins with; "#" and the alert's name in lower case follow. Empty: there is no
	// runbook_url.
	Runbooks string
	// Header is sent along, for instance Authorization.
	Header http.Header
	// Filter chooses the events that are alerts. Without Least: bus.Warning, farewells are alerts, too.
	Filter bus.Filter
	// Queue is how many events wait; 0 means the Bus's.
	Queue int
	// Resend is how often open alerts are sent again. 0 means DefaultResend.
	Resend time.Duration
	// Hold is how long an event that has no duration is an alert, and the least time for a condition that was closed
	// unresolved: a crash ends the job, and with it what there was to say, within less than the group_wait after which
	// Alertmanager notifies anybody. 0 means DefaultHold.
	Hold time.Duration
	// Timeout bounds one attempt. 0 means DefaultTimeout.
	Timeout time.Duration
	// Retry is the time until the next attempt when one has failed. 0 means DefaultRetry.
	Retry time.Duration
	// TLS is how the receivers are verified and the client identifies itself; nil means the system's roots.
	TLS *tls.Config
	// Logger hears when alerts can't be sent, and when they can again. nil means slog.Default().
	Logger *slog.Logger
}

// Option changes what a test or an unusual network needs to.
type Option func(*options)

type options struct{ transport http.RoundTripper }

// WithTransport sends requests through t; Config.TLS is not used then.
func WithTransport(t http.RoundTripper) Option { return func(o *options) { o.transport = t } }

func (c Config) complete() Config {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.Resend, DefaultResend}, {&c.Hold, DefaultHold}, {&c.Timeout, DefaultTimeout}, {&c.Retry, DefaultRetry}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate names every field that has a value that is not allowed. It repeats no URL.
func (c Config) Validate() error {
	c = c.complete()
	var errs []error
	if c.Bus == nil {
		errs = append(errs, errors.New("alertmanager.Config.Bus is nil: allowed is a Bus"))
	}
	if len(c.URLs) == 0 {
		errs = append(errs, errors.New("alertmanager.Config.URLs is empty: allowed are one or more addresses"))
	}
	for i, address := range c.URLs {
		if err := push.CheckURL(address); err != nil {
			errs = append(errs, fmt.Errorf("alertmanager.Config.URLs[%d] is %w", i, err))
		}
	}
	for name := range c.Labels {
		if !labelName(name) {
			errs = append(errs,
				fmt.Errorf("alertmanager.Config.Labels has %q: allowed are letters, digits and _, no digit first", name))
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Resend", c.Resend}, {"Hold", c.Hold}, {"Timeout", c.Timeout}, {"Retry", c.Retry}} {
		if d.value < time.Millisecond || d.value > 24*time.Hour {
			errs = append(errs, fmt.Errorf("alertmanager.Config.%s is %v: allowed are 1ms to 24h", d.name, d.value))
		}
	}
	return errors.Join(errs...)
}

// labelName tells whether Alertmanager takes the name, whatever its version.
func labelName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

func endpoint(address string) string { return strings.TrimRight(address, "/") + "/api/v2/alerts" }
