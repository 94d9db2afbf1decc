package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/fx"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Check is one of the checks behind /livez and /readyz. A program adds its own to the value group CheckGroup.
type Check struct {
	Name    string        // lower-case letters, digits, '-' and '_'; part of a URL
	Kind    health.Kind   // health.Live, health.Ready or both
	Timeout time.Duration // 0 is health.DefaultCheckTimeout
	Check   health.Check
}

// provideHealth makes the health endpoint, which starts last and stops first; nil when it is switched off.
func provideHealth(
	s settings, t *Telemetry, conditions *health.Conditions, publisher *health.Publisher, lc fx.Lifecycle, extra []Check, more []health.Route,
) (*health.Server, error) {
	if s.Health == "" {
		return nil, nil //nolint:nilnil // a nil Server is the endpoint switched off
	}
	registry := &health.Registry{}
	for _, c := range append(ownChecks(t), extra...) {
		if err := registry.Register(c.Name, c.Kind, c.Timeout, c.Check); err != nil {
			return nil, err
		}
	}
	routes := []health.Route{
		{Path: "/metrics", Title: "metrics for Prometheus", Handler: metricsHandler(t)},
	}
	if s.Tape {
		routes = append(routes,
			health.Route{Path: "/api/v1/traces", Title: "what they did last", Handler: t.Traces()},
		)
	}
	server, err := health.Listen(context.Background(), health.Config{
		Addr: s.Health, Registry: registry, Routes: append(routes, more...), Logger: s.Log,
		Conditions: conditions, Publisher: publisher, MinPollInterval: s.minPollInterval(),
		Access: s.HealthAccess, TrustedProxies: s.HealthProxies,
		Title: fmt.Sprintf("Carillon, rank %d of %d", s.World.Rank, s.World.Size),
	})
	var failed *net.OpError
	switch {
	case errors.As(err, &failed):
		return nil, fmt.Errorf("%w (CARILLON_HEALTH_ADDR chooses another address, CARILLON_HEALTH_ADDR=off does without)", err)
	case err != nil:
		return nil, err // it says itself what to set
	}
	if err := t.Registry().Register(server); err != nil {
		return nil, errors.Join(err, server.Stop(context.Background()))
	}
	lc.Append(fx.StopHook(server.Stop))
	if t.tape != nil {
		a := address{tape: t.tape.Path(), url: server.URL(), log: s.Log}
		lc.Append(fx.StartStopHook(a.write, a.withdraw))
	}
	return server, nil
}

// address makes the endpoint known beside the tape, where carillon watch and status look for it.
type address struct {
	tape, url string
	log       *slog.Logger
	remove    func() error
}

func (a *address) write() {
	var err error
	if a.remove, err = health.WriteAddress(a.tape, a.url); err != nil {
		a.log.Warn("carillon watch and status don't find this process by themselves (--url does)", "error", err)
	}
}

func (a *address) withdraw() {
	if a.remove != nil {
		_ = a.remove() // who finds it later sees that the process has ended
	}
}

// maxScrapes are answered at a time: a scrape is work, and there is one every few seconds.
const maxScrapes = 4

// metricsHandler serves the metrics, to who accepts OpenMetrics with exemplars.
func metricsHandler(t *Telemetry) http.Handler {
	return promhttp.HandlerFor(t.Registry(), promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes,
	})
}

// ownChecks are the checks of every process.
func ownChecks(t *Telemetry) []Check {
	return []Check{
		{Name: "process", Kind: health.Live, Check: func(context.Context) error { return nil }}, // it answers
		{Name: "tape", Kind: health.Ready, Check: func(context.Context) error { return t.broken() }},
		{Name: "communicators", Kind: health.Ready, Check: lately(func() error { return failed(t.Slots()) })},
	}
}

// checkAge is for how long what a check found is good enough: however many ask, the tape is read so often and no more.
const checkAge = 100 * time.Millisecond

// lately is a check that answers with what it found last, if that was a moment ago. It is never called twice at a time.
func lately(check func() error) health.Check {
	var at time.Time
	var found error
	return func(context.Context) error {
		if now := time.Now(); now.Sub(at) >= checkAge {
			found, at = check(), now
		}
		return found
	}
}

// failed names the communicators that have failed.
func failed(slots []tape.Slot) error {
	var errs []error
	for _, s := range slots {
		if s.State == lifecycle.StateFailed {
			errs = append(errs, fmt.Errorf("communicator %s (%s) rank %d of %d has failed", s.Name, s.ID.Short(), s.Rank, s.Size))
		}
	}
	return errors.Join(errs...)
}

// broken tells whether the tape can still be read.
func (t *Telemetry) broken() error {
	if t.tape == nil {
		return nil
	}
	select {
	case <-t.done:
		return t.failed
	default:
		return nil
	}
}
