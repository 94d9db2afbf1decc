package postmortem

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/carillon-rt/carillon/lifecycle/words"
)

// Colours of a terminal.
const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	bold   = "\x1b[1m"
	plain  = "\x1b[0m"
)

// text lays a report out.
type text struct {
	w     *bufio.Writer // keeps its error until Flush
	width int
	limit int // how long a row may be; 0 has no limit
	color bool
}

// paint writes what f writes in a colour.
func (t *text) paint(color string, f func()) {
	if t.color && color != "" {
		t.w.WriteString(color)
		defer t.w.WriteString(plain)
	}
	f()
}

func (t *text) heading(s string) {
	t.w.WriteByte('\n')
	t.paint(bold, func() { t.w.WriteString(cutTo(s, t.limit)) })
	t.w.WriteString("\n\n")
}

// paragraph writes words, as many to a line as fit; further lines begin under the first word.
func (t *text) paragraph(indent, words string) {
	line, space := indent, ""
	for word := range strings.FieldsSeq(words) {
		if space != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > t.width {
			t.w.WriteString(line + "\n")
			line, space = strings.Repeat(" ", utf8.RuneCountInString(indent)), ""
		}
		line += space + word
		space = " "
	}
	t.w.WriteString(line + "\n")
}

// more says how many items of a list are not shown, if any. item names one; it may be empty.
func (t *text) more(n int, item string) {
	if n <= 0 {
		return
	}
	what := strconv.Itoa(n)
	if item != "" {
		what = count(n, item)
	}
	t.paragraph("  ", "… and "+what+" more (all are in --json).")
}

// table writes a table with the column names in the first row, at most so many rows below it, and no empty columns.
func (t *text) table(rows [][]string, most int) {
	left := len(rows) - 1 - most
	rows = rows[:min(len(rows), 1+most)]
	widths := make([]int, len(rows[0]))
	used := make([]bool, len(rows[0]))
	for r, row := range rows {
		for i := range row {
			row[i] = words.Line(row[i])
			used[i] = used[i] || r > 0 && row[i] != ""
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		line.WriteString(" ")
		for i, cell := range row {
			if used[i] {
				fmt.Fprintf(&line, " %-*s ", widths[i], cell)
			}
		}
		t.w.WriteString(cutTo(strings.TrimRight(line.String(), " "), t.limit) + "\n")
	}
	t.more(left, "")
}

// cutTo shortens a line to so many columns, if limit isn't 0.
func cutTo(s string, limit int) string {
	if limit == 0 || utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit-1]) + "…"
}
