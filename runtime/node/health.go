package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/health/gpu"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Check is one of the checks behind /livez and /readyz.
type Check struct {
	Name    string        // lower-case letters, digits, '-' and '_'; part of a URL
	Kind    health.Kind   // health.Live, health.Ready or both
	Timeout time.Duration // 0 is health.DefaultCheckTimeout
	Check   health.Check
}

// maxScrapes is how many scrapes are answered at a time: a scrape is work, and one comes every few seconds.
const maxScrapes = 4

// metricsOf is the route of a health endpoint for Prometheus, with exemplars.
func metricsOf(g prometheus.Gatherer) health.Route {
	options := promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes}
	return health.Route{Path: "/metrics", Title: "metrics for Prometheus", Handler: promhttp.HandlerFor(g, options)}
}

// eventsOf is the route for a stream of events.
func eventsOf(stream http.Handler) health.Route {
	return health.Route{
		Path: health.EventsPath, Title: "what happens, as it happens", Handler: stream, Stream: true,
	}
}

// withProcess is a registry that has go_* and process_* already.
func withProcess() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// newHealth makes the health endpoint, and serves it unless it is switched off or mounted in another one.
func (o *observed) newHealth(mounted bool) (*health.Server, error) {
	s, t := o.settings, o.telemetry
	for _, c := range append(ownChecks(t, o.gpu), s.Checks...) {
		if err := o.checks.Register(c.Name, c.Kind, c.Timeout, c.Check); err != nil {
			return nil, err
		}
	}
	own := []health.Route{metricsOf(t.gatherer)}
	if t.tape != nil {
		own = append(own, health.Route{Path: "/api/v1/traces", Title: "what they did last", Handler: t.Traces()})
	}
	if o.ras != nil {
		own = append(own, eventsOf(o.ras.stream))
	}
	title := fmt.Sprintf("Carillon, rank %d of %d", s.World.Rank, s.World.Size)
	if s.World.Rank < 0 {
		title = "Carillon, " + t.self.Name
	}
	server, err := serve(s, mounted, health.Config{
		Registry: &o.checks, Routes: append(own, s.Routes...), Conditions: o.conditions,
		Publisher: &o.publisher, Title: title,
	})
	if err != nil {
		return nil, err
	}
	if err := t.Registry().Register(server); err != nil {
		return nil, errors.Join(err, server.Stop(context.Background()))
	}
	return server, nil
}

// serve makes a health endpoint with the settings for it, and lets it listen unless it is switched off or mounted in
// another one.
func serve(s *settings, mounted bool, cfg health.Config) (*health.Server, error) {
	cfg.Addr, cfg.Access, cfg.TrustedProxies, cfg.Logger = s.Health, s.HealthAccess, s.HealthProxies, s.Log
	cfg.MinPollInterval, cfg.PollBurst = s.MinPollInterval, health.DefaultPollBurst
	if s.Health == "" || mounted {
		return health.New(cfg)
	}
	server, err := health.Listen(context.Background(), cfg)
	if _, failed := errors.AsType[*net.OpError](err); failed { // other errors say what to set
		const advice = "CARILLON_HEALTH_ADDR chooses another address, CARILLON_HEALTH_ADDR=off does without"
		err = fmt.Errorf("%w (%s)", err, advice)
	}
	return server, err
}

// ownChecks are the checks of every process.
func ownChecks(t *Telemetry, m *gpu.Monitor) []Check {
	checks := []Check{
		{Name: "process", Kind: health.Live, Check: answers},
		{Name: "tape", Kind: health.Ready, Check: func(context.Context) error { return t.broken() }},
		{Name: "communicators", Kind: health.Ready, Check: lately(func() error { return failed(t.Slots()) })},
	}
	if m != nil {
		checks = append(checks, Check{Name: "gpu", Kind: health.Ready, Check: gpuCheck(m)})
	}
	return checks
}

// answers is the check that fails only by not answering.
func answers(context.Context) error { return nil }

// checkAge is how long the result of a check is reused: the tape isn't read more often, however many clients ask.
const checkAge = 100 * time.Millisecond

// lately makes a check that reuses its last result for checkAge. The check is never called twice at a time.
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
			err := fmt.Errorf("communicator %s (%s) rank %d of %d has failed", s.Name, s.ID.Short(), s.Rank, s.Size)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
