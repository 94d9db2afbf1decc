package otlplog_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/log/embedded"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/otlplog"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// logger hands records to a function.
type logger struct {
	embedded.Logger
	emit func(log.Record)
}

func (l logger) Emit(_ context.Context, r log.Record)              { l.emit(r) }
func (logger) Enabled(context.Context, log.EnabledParameters) bool { return true }

func TestRecord(t *testing.T) {
	at, now := time.Unix(100, 0).UTC(), time.Unix(101, 0).UTC()
	b := bus.New(bus.Config{Source: "/jobs/train", Job: "train"})
	s := b.Attach(bus.Filter{}, "")
	err := b.Publish(bus.Event{
		Type: semconv.EventVerdictOpened, Stage: bus.Opened, Key: "v1", Cause: "none", Severity: bus.Critical,
		Reason: "not_entered", Rank: "3", Subject: "rank 3", Text: "why", Time: at, Data: map[string]int{"seq": 41},
	})
	if err != nil {
		t.Fatal(err)
	}
	ev, err := s.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := otlplog.Record(ev, now)
	got := map[attribute.Key]string{}
	r.WalkAttributes(func(kv attribute.KeyValue) bool {
		got[kv.Key] = kv.Value.String()
		return true
	})
	want := map[attribute.Key]string{
		semconv.EventID: ev.ID, semconv.EventSource: "/jobs/train", semconv.EventType: semconv.EventVerdictOpened,
		semconv.EventStage: "opened", semconv.EventSubject: "rank 3", semconv.EventKey: "v1",
		semconv.EventCause: "none",
		semconv.Job:        "train", semconv.EventReason: "not_entered", semconv.EventRank: "3",
		semconv.EventData: `{"seq":41}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if r.EventName() != semconv.EventVerdictOpened || r.Severity() != log.SeverityError ||
		r.SeverityText() != "critical" ||
		r.Body().AsString() != "why" || !r.Timestamp().Equal(at) || !r.ObservedTimestamp().Equal(now) {
		t.Errorf("record: %v %v %v %v", r.EventName(), r.Severity(), r.Body(), r.Timestamp())
	}
}
