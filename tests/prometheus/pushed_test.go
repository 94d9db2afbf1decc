package prometheus

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/alertmanager"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// TestPushedAlertsOfGPUs: pushed alerts have the names and labels of the rules. Another test makes a job push its
// verdicts.
func TestPushedAlertsOfGPUs(t *testing.T) {
	p := newPushed(t)
	b := bus.New(bus.Config{Job: "train"})
	sink, err := alertmanager.New(alertmanager.Config{
		SinkConfig: bus.SinkConfig{Bus: b, Logger: slog.New(slog.DiscardHandler)}, URLs: []string{p.url},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- sink.Run(context.Background()) }()
	defer func() {
		b.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	n := exported(t)
	for kind, more := range map[string]string{
		semconv.EventGPUXid: "gpu xid", semconv.EventGPUECC: "gpu", semconv.EventGPUNVLink: "gpu",
		semconv.EventGPUThrottled: "gpu", semconv.EventGPULost: "state",
	} {
		labels := map[string]string{"host": "h"}
		for name := range strings.FieldsSeq(more) {
			labels[name] = "1"
		}
		err := b.Publish(bus.Event{
			Type: kind, Stage: bus.Opened, Severity: bus.Critical, Key: kind, Reason: "gpu", Rank: "0", Text: "broken",
			Labels: labels,
		})
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		select {
		case got = <-p.labels:
		case <-time.After(time.Minute):
			t.Fatalf("%s: nothing is pushed", kind)
		}
		i := slices.IndexFunc(rules(t), func(r rule) bool { return r.Alert == got["alertname"] })
		if i < 0 {
			t.Errorf("%s: no rule is called %s", kind, got["alertname"])
			continue
		}
		has, _ := n.check(rules(t)[i].Expr)
		has["alertname"], has["severity"] = true, true
		if pushed, scraped := slices.Sorted(maps.Keys(got)),
			slices.Sorted(maps.Keys(has)); !slices.Equal(pushed, scraped) {
			t.Errorf("%s is pushed with the labels %s, and has %s by its rule", got["alertname"], pushed, scraped)
		}
	}
}
