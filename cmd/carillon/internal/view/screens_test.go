package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

func TestScreens(t *testing.T) {
	for name, job := range map[string]func(*testing.T) (*View, time.Time){"hang": hang, "huge": hugeJob} {
		for _, size := range []struct{ columns, rows int }{{80, 24}, {132, 43}, {40, 12}} {
			v, now := job(t)
			f := Frame{Report: v.Report(now), Events: someEvents(now), Columns: size.columns, Rows: size.rows}
			lines := f.Lines()
			if len(lines) != size.rows {
				t.Errorf("%s: %d lines, want %d", name, len(lines), size.rows)
			}
			for _, l := range lines {
				if w := runewidth.StringWidth(l); w > size.columns {
					t.Errorf("%s: a line has %d columns of %d: %s", name, w, size.columns, l)
				}
			}
			recorded(t, fmt.Sprintf("%s-%dx%d.txt", name, size.columns, size.rows), strings.Join(lines, "\n")+"\n")
		}
	}
}

// TestOverIsNoAlarm: a verdict that is withdrawn doesn't look like one that opens, and one whose cause may persist
// doesn't look like one that healed.
func TestOverIsNoAlarm(t *testing.T) {
	for want, unresolved := range map[string]bool{
		"over     verdict.withdrawn rank 2": false, "not over verdict.withdrawn rank 2": true,
	} {
		f := Frame{Report: &Report{Status: statusOK}, Columns: 80, Rows: 12, Colored: true, Events: []*bus.Event{
			{
				Type: semconv.EventVerdictWithdrawn, Stage: bus.Closed, Unresolved: unresolved, Severity: bus.Critical,
				Subject: "rank 2",
			},
		}}
		screen := strings.Join(f.Lines(), "\n")
		if !strings.Contains(screen, want) || strings.Contains(screen, escapes[red]) ||
			strings.Contains(screen, escapes[yellow]) != unresolved {
			t.Errorf("unresolved %v: %q, want %q", unresolved, screen, want)
		}
	}
}

// TestAllEvidence: no evidence is left out if the screen has room for it.
func TestAllEvidence(t *testing.T) {
	s := snapshot(t, "hang.json")
	s.Verdicts[0].Evidence = nil
	for i := range 6 {
		s.Verdicts[0].Evidence = append(s.Verdicts[0].Evidence, verdict.Sentence(fmt.Sprintf("evidence %d", i)))
	}
	var v View
	v.Merge(s.Time, s)
	for rows, all := range map[int]bool{24: true, 16: false} {
		f := Frame{Report: v.Report(s.Time), Columns: 80, Rows: rows}
		screen := strings.Join(f.Lines(), "\n")
		if strings.Contains(screen, "evidence 5") != all || strings.Contains(screen, "… ") == all {
			t.Errorf("a screen of %d rows should have all evidence: %v\n%s", rows, all, screen)
		}
	}
}

// TestTinyScreens: screens of any size work.
func TestTinyScreens(t *testing.T) {
	fits := func(v *View, now time.Time, columns, rows int) {
		f := Frame{Report: v.Report(now), Events: someEvents(now), Columns: columns, Rows: rows, Note: "note"}
		lines := f.Lines()
		if len(lines) > max(rows, 1) {
			t.Fatalf("%dx%d: %d lines", columns, rows, len(lines))
		}
		for _, l := range lines {
			if w := runewidth.StringWidth(l); w > max(columns, 1) {
				t.Fatalf("%dx%d: a line of %d columns: %q", columns, rows, w, l)
			}
		}
	}
	small, now := hang(t)
	for columns := range 30 {
		for rows := range 12 {
			fits(small, now, columns, rows)
		}
	}
	huge, now := hugeJob(t) // it takes longer
	for columns := range 30 {
		fits(huge, now, columns, columns%12)
	}
}
