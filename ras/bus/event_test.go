package bus_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// TestPublishRefuses: Publish refuses malformed events, and says what is wrong.
func TestPublishRefuses(t *testing.T) {
	b := newBus(t, bus.Config{})
	s := b.Attach(bus.Filter{}, "")
	for _, c := range []struct {
		ev   bus.Event
		want string
	}{
		{bus.Event{}, "Type"},
		{bus.Event{Type: "a\nb"}, "Type"},
		{bus.Event{Type: "x", Source: "\x7f"}, "Source"},
		{bus.Event{Type: "x", Stage: bus.Opened}, "Key"},
		{bus.Event{Type: "x", Key: "k", Stage: 9}, "stage(9)"},
		{bus.Event{Type: "x", Severity: 9}, "severity(9)"},
		{bus.Event{Type: "x", Data: math.Inf(1)}, "data"},
		{bus.Event{Type: "x", Data: strings.Repeat("x", bus.MaxData)}, "data"},
	} {
		if err := b.Publish(c.ev); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v, want an error that names %s", c.ev.Type, err, c.want)
		}
	}
	if b.Close(); s.Waiting() {
		t.Errorf("%v is published", next(t, s))
	}
}

// TestPublishCompletes: fields that the publisher leaves out are set, and long texts are cut between characters.
func TestPublishCompletes(t *testing.T) {
	b := newBus(t, bus.Config{Source: "/jobs/train/ranks/0", Job: "train"})
	s := b.Attach(bus.Filter{}, "")
	err := b.Publish(bus.Event{
		Type: semconv.EventRankDead, ID: "mine", Job: "other", Repeats: 7, Text: strings.Repeat("ü",
			bus.MaxText), Subject: "a\xffb",
		Data: map[string]int{"pid": 7},
	})
	if err != nil {
		t.Fatal(err)
	}
	ev := next(t, s)
	if ev.ID == "mine" || ev.ID == "" || ev.Job != "train" || ev.Source != "/jobs/train/ranks/0" || ev.Repeats != 0 ||
		ev.Time.IsZero() {
		t.Errorf("%+v", ev)
	}
	if len(ev.Text) > bus.MaxText || len(ev.Text) < bus.MaxText-1 || !utf8.ValidString(ev.Text) ||
		ev.Subject != "a\uFFFDb" {
		t.Errorf("text of %d bytes, subject %q", len(ev.Text), ev.Subject)
	}
	if string(ev.JSON()) != `{"pid":7}` {
		t.Errorf("data %s", ev.JSON())
	}
}

// TestRoundTrip: what MarshalJSON writes is a CloudEvent, and UnmarshalJSON reads it.
func TestRoundTrip(t *testing.T) {
	b := newBus(t, bus.Config{Source: "/jobs/train", Job: "train"})
	s := b.Attach(bus.Filter{}, "")
	for _, ev := range []bus.Event{
		{Type: semconv.EventRankDead},
		{
			Type: semconv.EventVerdictOpened, Stage: bus.Opened, Key: "k", Cause: "none", Severity: bus.Critical,
			Reason: "not_entered", Rank: "3", Subject: "rank 3", Text: "a \"line\"\nand <one> more", Description: "…",
			Time: time.Unix(9, 8).UTC(),
			Data: []any{1, "x", nil},
		},
	} {
		if err := b.Publish(ev); err != nil {
			t.Fatal(err)
		}
		sent := next(t, s)
		encoded, err := json.Marshal(sent)
		if err != nil {
			t.Fatal(err)
		}
		var envelope struct{ SpecVersion, ID, Source, Type string }
		if err := json.Unmarshal(encoded, &envelope); err != nil || envelope.SpecVersion != "1.0" ||
			envelope.ID != sent.ID ||
			envelope.Source != "/jobs/train" || envelope.Type != ev.Type {
			t.Errorf("%v: %s", err, encoded)
		}
		var got bus.Event
		if err := json.Unmarshal(encoded, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(sent, &got, cmpopts.IgnoreUnexported(bus.Event{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-sent +got):\n%s\n%s", diff, encoded)
		}
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	const head = `{"specversion":"1.0","id":"1","source":"/","type":"x"`
	for in, want := range map[string]string{
		`{}`: "not a CloudEvent",
		`{"specversion":"1.0","id":"1","source":"/","type":""}`: "not a CloudEvent",

		head + `,"severity":"bad"}`: "severity",
		head + `,"stage":"bad"}`:    "stage",
		head + `,"repeats":"-1"}`:   "repeats",

		head + `,"data_base64":"eA==","datacontenttype":"text/plain"}`: "not JSON",
	} {
		var ev bus.Event
		if err := ev.UnmarshalJSON([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", in, err, want)
		}
	}
}

// FuzzUnmarshal: input is refused without a panic, or is an event that can be written and read again.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(
		`{"specversion":"1.0","id":"1","source":"/","type":"x",` +
			`"time":"2024-01-01T00:00:00Z","severity":"warning","data":{"a":1}}`))
	f.Add([]byte(`{"specversion":"0.3","id":"1","source":"/","type":"x","data_base64":"////"}`))
	f.Add([]byte(`{"specversion":1e9,"id":null,"repeats":18446744073709551616}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var ev, again bus.Event
		if ev.UnmarshalJSON(in) != nil {
			return
		}
		encoded, err := ev.MarshalJSON()
		if err != nil {
			return // what an older version allows, this one may not
		}
		if err := again.UnmarshalJSON(encoded); err != nil {
			t.Fatalf("%q became %q: %v", in, encoded, err)
		}
		if diff := cmp.Diff(ev.Type+ev.Key+ev.Text+ev.Severity.String(),
			again.Type+again.Key+again.Text+again.Severity.String()); diff != "" {
			t.Fatalf("%q: %s", in, diff)
		}
	})
}

// FuzzResume: after any id but an empty one, a subscriber gets the whole history, and a notice that the id isn't known.
func FuzzResume(f *testing.F) {
	for _, id := range []string{
		"0", "", "0123456789abcdef-0", "0123456789abcdef-18446744073709551615", "-",
		"0123456789abcdef-+1", "0123456789abcdef-01",
	} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		b := newBus(t, bus.Config{History: 2})
		for _, text := range []string{"1", "2", "3"} {
			publish(t, b, text)
		}
		s := b.Attach(bus.Filter{}, id)
		defer s.Close()
		if id == "" {
			want(t, s)
			return
		}
		if gap := next(t, s); gap.Type != semconv.EventGap || !utf8.Valid(gap.JSON()) {
			t.Errorf("%q: %s %s, want a gap", id, gap.Type, gap.JSON())
		}
		want(t, s, "2", "3")
	})
}
