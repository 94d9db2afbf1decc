package view

import (
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/mattn/go-runewidth"

	"github.com/carillon-rt/carillon/ras/bus"
)

// Frame is one screen of a job.
type Frame struct {
	Report *Report // nil: nothing is known yet
	// Events are the last events, the latest last.
	Events []*bus.Event
	// Note says something about the connection to the job: "waiting for a process that answers".
	Note string
	// Columns and Rows are the screen's size. On a screen below the least size, the frame is cut.
	Columns, Rows int
	Colored       bool
}

// The smallest screen that a frame is laid out for.
const (
	minColumns = 20
	minRows    = 6
)

// Lines returns the frame's lines: at most Rows, of at most Columns columns, without line breaks.
func (f *Frame) Lines() []string {
	columns, rows := max(f.Columns, minColumns), max(f.Rows, minRows)
	lines := []line{f.header(columns)}
	if f.Report != nil {
		events := min(len(f.Events), rows/5) + 1 // at least
		for _, s := range f.Report.layout(columns, rows-len(lines)-1-events) {
			lines = append(append(lines, s.head), s.rows...)
		}
	}
	lines = append(lines, f.events(rows-len(lines)-1)...)
	for len(lines) < rows-1 {
		lines = append(lines, nil)
	}
	lines = append(lines[:rows-1], f.footer())
	lines = lines[:min(rows, max(f.Rows, 1))]
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = l.render(max(f.Columns, 1), f.Colored)
	}
	return out
}

func (f *Frame) header(columns int) line {
	if f.Report == nil {
		return line{}.say(bold, "carillon watch").say(plain, "  %s", f.Note)
	}
	l := f.Report.headline()
	clock := f.Report.Time.Local().Format(timeOfDay)
	if gap := columns - runewidth.StringWidth(l.render(columns, false)) - len(clock); gap > 0 {
		l = l.say(plain, "%s", strings.Repeat(" ", gap)).say(dim, "%s", clock)
	}
	return l
}

func (f *Frame) footer() line {
	l := line{}.say(dim, "q quits")
	if f.Note != "" && f.Report != nil {
		l = l.say(dim, " · ").say(yellow, "%s", f.Note)
	}
	return l
}

func (f *Frame) events(rows int) []line {
	if rows < 2 || len(f.Events) == 0 {
		return nil
	}
	lines := []line{line{}.say(bold, "EVENTS")}
	for _, ev := range f.Events[max(0, len(f.Events)-(rows-1)):] {
		look := looks[ev.Severity]
		if ev.Stage == bus.Closed {
			look = plain       // no action is needed
			if ev.Unresolved { // the waiting ranks are gone, but their problem may persist
				look = yellow
			}
		}
		lines = append(lines, line{{plain, "  "}, {look, EventLine(ev)}})
	}
	return lines
}

// layout returns the sections for a screen of columns and room rows, each cut to what fits.
func (r *Report) layout(columns, room int) (sections []section) {
	for _, lim := range []limits{{}, {text: 4, evidence: 3, ranks: 4}, {text: 3, evidence: 2, ranks: 2}} {
		lim.width = columns
		if sections = r.sections(lim); height(sections) <= room {
			return sections
		}
	}
	fit(sections, room)
	return sections
}

func height(sections []section) (rows int) {
	for i := range sections {
		rows += 1 + len(sections[i].rows)
	}
	return rows
}

// fit removes rows from the longest sections until all sections fit, and shows in each how many are missing.
func fit(sections []section, room int) {
	keep := make([]int, len(sections))
	for i := range sections {
		keep[i] = len(sections[i].rows)
	}
	for total := height(sections); total > room; total-- {
		longest := -1
		for i := range keep {
			if keep[i] > 0 && (longest < 0 || weight(i, keep[i]) > weight(longest, keep[longest])) {
				longest = i
			}
		}
		if longest < 0 {
			break
		}
		keep[longest]--
	}
	for i := range sections {
		if missing := len(sections[i].rows) - keep[i]; missing > 0 && keep[i] > 0 {
			sections[i].rows = sections[i].rows[:keep[i]]
			sections[i].rows[keep[i]-1] = line{}.say(dim, "  … %d more lines", missing+1)
		} else if missing > 0 {
			sections[i].rows = nil
			sections[i].head = sections[i].head.say(dim, "  … %s", english.Plural(missing, "line", ""))
		}
	}
}

// weight makes the first section, which has the verdicts, the last to lose rows.
func weight(section, rows int) int {
	if section == 0 {
		return rows / 8
	}
	return rows
}
