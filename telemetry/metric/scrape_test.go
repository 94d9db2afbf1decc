package metric_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/metric"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// scrape asks as Prometheus does, and counts the series in the answer.
func scrape(tb testing.TB, h http.Handler, body *strings.Builder) (series int) {
	tb.Helper()
	body.Reset()
	req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	req.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	if rec.Code != http.StatusOK {
		tb.Fatalf("%d: %s", rec.Code, rec.Body)
	}
	body.Write(rec.Body.Bytes())
	for line := range strings.Lines(body.String()) {
		if !strings.HasPrefix(line, "#") {
			series++
		}
	}
	return series
}

// BenchmarkScrape is a whole scrape, from the table of a tape to the text: ten thousand communicators, 588 groups of 17
// ranks, all in one process, each with an operation in flight, and operations of every kind and size behind them. A
// scrape must stay below 50 ms; series/op is the cost for Prometheus.
func BenchmarkScrape(b *testing.B) {
	const ranks, groups = 17, 588
	w, err := tape.Create(tape.Config{Dir: b.TempDir(), Job: "bench", Slots: ranks * groups})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close() //nolint:errcheck // the tape goes with the folder
	f, err := tape.Follow(b.Context(), w.Path(), 0)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it reads only
	c, err := metric.NewCollector(metric.Config{Slots: f.Slots, Now: tape.Now, Missed: f.Missed})
	if err != nil {
		b.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	for g := range groups {
		name := fmt.Sprintf("group-%d", g)
		for rank := range ranks {
			comm := w.Comm(tape.CommInfo{
				ID: lifecycle.CommID{byte(g), byte(g >> 8), 1}, Name: name, Rank: rank,
				Size: ranks, Engine: "host",
			})
			comm.State(lifecycle.StateReady)
			comm.Start(0, tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 8}, 0)
		}
		for call := lifecycle.CallAllReduce; call <= lifecycle.CallBarrier; call++ {
			observe(c, op(name, call, uint64(8)<<(g%30), time.Millisecond, lifecycle.CodeOK))
		}
	}
	h := promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true})
	var body strings.Builder
	series := 0
	b.ReportAllocs()
	for b.Loop() {
		series = scrape(b, h, &body)
	}
	if n := len(f.Slots()); n != ranks*groups {
		b.Fatalf("%d communicators in the table", n)
	}
	b.ReportMetric(float64(series), "series/op")
}
