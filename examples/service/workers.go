package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	oteltrace "go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"
	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/runtime/ccl"
)

const (
	ranks   = 4
	maxBody = 1 << 20
)

// workers reduce the posted numbers. Each worker is a rank, and has a part of the numbers.
type workers struct {
	tracer   oteltrace.Tracer
	requests *prometheus.CounterVec

	mu    sync.Mutex // held during a reduction, as all ranks must make the same calls in the same order
	comms []*ccl.Comm
}

func newWorkers(lc fx.Lifecycle, rt *ccl.Runtime, t *tracing, metrics prometheus.Registerer) (*workers, error) {
	w := &workers{
		tracer: t.provider.Tracer("mean"),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mean_requests_total", Help: "Requests for a mean, by status code.",
		}, []string{"code"}),
	}
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) (err error) {
			w.comms, err = rt.InitAll(ctx, ranks, ccl.WithName("workers"))
			return err
		},
		OnStop: func(ctx context.Context) error { return w.each(func(c *ccl.Comm) error { return c.Destroy(ctx) }) },
	})
	return w, metrics.Register(w.requests)
}

// each calls f for all ranks concurrently.
func (w *workers) each(f func(c *ccl.Comm) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var g errgroup.Group
	for _, c := range w.comms {
		g.Go(func() error { return f(c) })
	}
	return g.Wait()
}

// mean returns the mean of numbers. The end of ctx doesn't interrupt it, as abandoning a collective would end its
// communicator.
func (w *workers) mean(ctx context.Context, numbers []float64) (mean float64, err error) {
	ctx, span := w.tracer.Start(context.WithoutCancel(ctx), "mean") // spans of collectives link to this span
	defer span.End()
	err = w.each(func(c *ccl.Comm) error {
		sum := []float64{0}
		for i := c.Rank(); i < len(numbers); i += c.Size() {
			sum[0] += numbers[i]
		}
		if err := ccl.AllReduce(ctx, c, sum, sum, ccl.Sum); err != nil {
			return err
		}
		if c.Rank() == 0 {
			mean = sum[0] / float64(len(numbers))
		}
		return nil
	})
	return mean, err
}

func (w *workers) serveMean(out http.ResponseWriter, r *http.Request) {
	code, text := http.StatusOK, ""
	numbers, err := read(http.MaxBytesReader(out, r.Body, maxBody))
	if err != nil {
		code, text = http.StatusBadRequest, err.Error()
	} else if mean, err := w.mean(r.Context(), numbers); err != nil {
		code, text = http.StatusInternalServerError, err.Error()
	} else {
		text = strconv.FormatFloat(mean, 'g', -1, 64)
	}
	w.requests.WithLabelValues(strconv.Itoa(code)).Inc()
	out.WriteHeader(code)
	_, _ = fmt.Fprintln(out, text) // fails if the client has disconnected
}

// read reads numbers that are separated by white space.
func read(from io.Reader) ([]float64, error) {
	text, err := io.ReadAll(from)
	if err != nil {
		return nil, err
	}
	var numbers []float64
	for field := range strings.FieldsSeq(string(text)) {
		x, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, x)
	}
	if len(numbers) == 0 {
		return nil, errors.New("want numbers, separated by blanks")
	}
	return numbers, nil
}

// check is a check of the health endpoint.
func (w *workers) check(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.comms) == 0 {
		return errors.New("the workers have not begun")
	}
	var errs []error
	for _, c := range w.comms {
		errs = append(errs, c.AsyncError())
	}
	return errors.Join(errs...)
}
