package bus_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

var rewrite = flag.Bool("rewrite", false, "write the scenarios in testdata as they are now")

// TestScenarios plays the transcripts in testdata, in virtual time: a command a line, and indented below it what a
// subscriber gets of it. The commands:
//
//	once|open|change|close KEY [cause=KEY] [warning|critical] [TEXT …]    publishes; KEY is "-" for none
//	wait TIME                                                             lets time go by
//	end                                                                   closes the bus
//	totals                                                                prints its counts
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = play(t, string(script)) })
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(script) {
				t.Errorf("%s differs (go test -rewrite accepts it):\n%s", file, got)
			}
		})
	}
}

const indent = "    "

func play(t *testing.T, script string) string {
	b := newBus(t, bus.Config{})
	s := b.Attach(bus.SubscriptionConfig{})
	began := time.Now()
	var out strings.Builder
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, indent) {
			continue
		}
		out.WriteString(line)
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		answer, err := command(b, strings.Fields(line))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out.WriteString(answer)
		synctest.Wait()
		for s.Waiting() {
			ev, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "%s%v %s\n", indent, time.Since(began), shown(ev))
		}
	}
	return out.String()
}

func command(b *bus.Bus, words []string) (string, error) {
	verbs := map[string]bus.Stage{"once": bus.Once, "open": bus.Opened, "change": bus.Changed, "close": bus.Closed}
	stage, publish := verbs[words[0]]
	switch {
	case publish && len(words) > 1:
		ev := bus.Event{Type: semconv.EventPrefix + words[0], Stage: stage}
		if words[1] != "-" {
			ev.Key = words[1]
		}
		for _, word := range words[2:] {
			if cause, ok := strings.CutPrefix(word, "cause="); ok {
				ev.Cause = cause
			} else if severity, err := bus.ParseSeverity(word); err == nil {
				ev.Severity = severity
			} else {
				ev.Text = strings.TrimSpace(ev.Text + " " + word)
			}
		}
		return "", b.Publish(ev)
	case words[0] == "wait" && len(words) == 2:
		d, err := time.ParseDuration(words[1])
		time.Sleep(d) // virtual
		return "", err
	case words[0] == "end":
		b.Close()
		return "", nil
	case words[0] == "totals":
		return fmt.Sprintf("%s%+v\n", indent, b.Totals()), nil
	}
	return "", fmt.Errorf("no such command")
}

func shown(ev *bus.Event) string {
	out := fmt.Sprintf("%s %s %s", ev.Severity, strings.TrimPrefix(ev.Type, semconv.EventPrefix), ev.Key)
	if ev.Text != "" {
		out += ": " + ev.Text
	}
	if ev.Repeats > 0 {
		out += fmt.Sprintf(" (%d like it)", ev.Repeats)
	}
	if ev.Suppressed > 0 {
		out += fmt.Sprintf(" (%d symptoms)", ev.Suppressed)
	}
	return out
}

// newBus makes a Bus that ends with the test.
func newBus(t *testing.T, cfg bus.Config) *bus.Bus {
	t.Helper()
	b, err := bus.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// next takes what must be there already.
func next(t *testing.T, s *bus.Subscription) *bus.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ev, err := s.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return ev
}
