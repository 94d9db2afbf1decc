package node

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/ras/bus"
)

// TestChangedCulpritsAreLogged: a change of a verdict is a detail, unless it names other culprits.
func TestChangedCulpritsAreLogged(t *testing.T) {
	var out bytes.Buffer
	cfg := Default()
	cfg.Log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	sink := newSink(t.Context(), &cfg)
	defer func() {
		if err := sink.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	r := &JobRAS{settings: &settings{sink: sink}, blamed: map[string]string{}}
	out.Reset()
	for _, ev := range []bus.Event{
		{Stage: bus.Opened, Text: "opened", Rank: "2"},
		{Stage: bus.Changed, Text: "more-wait", Rank: "2"},
		{Stage: bus.Changed, Text: "it-is-another", Rank: "3"},
		{Stage: bus.Closed, Text: "withdrawn", Rank: "3"},
		{Stage: bus.Changed, Text: "unknown", Rank: "2"},
	} {
		ev.Key = "verdict/1"
		if err := r.logEvent(t.Context(), &ev); err != nil {
			t.Error(err)
		}
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		_, text, _ := strings.Cut(line, "msg=")
		got = append(got, strings.Fields(text)[0])
	}
	if want := []string{"opened", "it-is-another", "withdrawn"}; !slices.Equal(got, want) {
		t.Errorf("logged as warnings are %q, want %q", got, want)
	}
}
