package terminal_test

import (
	"testing"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/terminal"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

func TestLine(t *testing.T) {
	at := time.Date(2025, 3, 4, 6, 12, 3, 0, time.Local)
	for _, c := range []struct {
		ev   bus.Event
		want string
	}{
		{
			bus.Event{
				Type: semconv.EventVerdictOpened, Severity: bus.Critical, Subject: "rank 3", Reason: "not_entered",
				Text: "rank 3 has not entered all_reduce #41",
			},
			"06:12:03 CRITICAL verdict.opened: rank 3 has not entered all_reduce #41 (reason not_entered)\n",
		},
		{
			bus.Event{
				Type: semconv.EventVerdictWithdrawn, Stage: bus.Closed, Severity: bus.Critical, Text: "rank 3 had not entered",
				Repeats: 2, Suppressed: 12,
			},
			"06:12:03 over     verdict.withdrawn: rank 3 had not entered (2 more like it, 12 symptoms were held back)\n",
		},
		{bus.Event{Type: semconv.EventRankDead, Severity: bus.Warning}, "06:12:03 WARNING  rank.dead\n"},
		{ // from another process, and hostile
			bus.Event{Type: semconv.EventRankDead, Text: "\x1b[2J\u202edead\nFAKE LINE"},
			"06:12:03 info     rank.dead: \\u001b[2J\\u202edead FAKE LINE\n",
		},
	} {
		c.ev.Time = at
		if got := terminal.Line(&c.ev); got != c.want {
			t.Errorf("got\n%swant\n%s", got, c.want)
		}
	}
}
