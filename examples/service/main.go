// Command service is a small fx service with its own log, metrics registry, traces, mux and resource, which Carillon
// uses. It answers with the mean of the numbers that are posted to it. Its workers are the ranks of a communicator,
// each with a part of the numbers.
//
//	bin/service &
//	curl -d '1 2 3 4' http://127.0.0.1:8080/mean
//	curl http://127.0.0.1:8080/metrics                  # its own metrics, Go's, the process's and Carillon's
//	curl http://127.0.0.1:8080/carillon/readyz?verbose  # Carillon's health endpoint, with a check of its own
//
// OTEL_TRACES_EXPORTER=console shows its spans and Carillon's, from one exporter.
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/runtime/node"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`host:port` to listen at")
	flag.Parse()
	fx.New(service(*addr)).Run()
}

// service is the program. Carillon finds the logger, the Registerer and the resource in the fx graph; options set the
// rest.
func service(addr string) fx.Option {
	return fx.Options(
		fx.Provide(newLogger, newResource, newRegistry, newExporter, newTracing, newWorkers, newMux,
			func(r *prometheus.Registry) prometheus.Registerer { return r }),
		fx.WithLogger(func(log *slog.Logger) fxevent.Logger {
			events := &fxevent.SlogLogger{Logger: log}
			events.UseLogLevel(slog.LevelDebug)
			return events
		}),

		node.Module,
		node.Provide(
			func(t *tracing) node.Option { return node.WithSpanProcessor(t.processor) },
			func() node.Option { return node.WithHealth("") }, // no port of its own: see newMux
			func(log *slog.Logger) node.Option { return node.WithObserver(observer(log)) },
		),

		fx.Invoke(
			func(checks *health.Registry, w *workers) error {
				return checks.Register("workers", health.Ready, 0, w.check)
			},
			func(lc fx.Lifecycle, mux *http.ServeMux, log *slog.Logger) { serve(lc, addr, mux, log) },
		),
	)
}

// newMux serves the service's own pages, and Carillon's under /carillon/.
func newMux(w *workers, registry *prometheus.Registry, n *node.Node) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mean", w.serveMean)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.Handle("/carillon/", http.StripPrefix("/carillon", n.HealthHandler()))
	return mux
}

// serve listens while the program runs.
func serve(lc fx.Lifecycle, addr string, handler http.Handler, log *slog.Logger) {
	server := &http.Server{Handler: handler}
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			var config net.ListenConfig
			l, err := config.Listen(ctx, "tcp", addr)
			if err != nil {
				return err
			}
			log.Info("listening", "url", "http://"+l.Addr().String()+"/")
			go func() {
				if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
					log.Error("the server ended", "error", err)
				}
			}()
			return nil
		},
		OnStop: server.Shutdown,
	})
}
