package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/carillon-rt/carillon/lifecycle/words"
)

type style uint8

const (
	plain style = iota
	bold
	dim
	red
	yellow
	green
)

var escapes = [...]string{
	plain: "", bold: "\x1b[1m", dim: "\x1b[2m", red: "\x1b[1;31m", yellow: "\x1b[33m",
	green: "\x1b[32m",
}

const reset = "\x1b[0m"

// piece is text in one style, without control characters.
type piece struct {
	style style
	text  string
}

type line []piece

func (l line) say(s style, format string, args ...any) line {
	return append(l, piece{s, words.Line(fmt.Sprintf(format, args...))})
}

// render renders the line, in at most width columns unless width is 0.
func (l line) render(width int, colored bool) string {
	var b strings.Builder
	used := 0
	for _, p := range l {
		text := p.text
		if width > 0 {
			if used >= width {
				break
			}
			if runewidth.StringWidth(text) > width-used {
				text = runewidth.Truncate(text, width-used, "…")
			}
			used += runewidth.StringWidth(text)
		}
		if colored && p.style != plain {
			text = escapes[p.style] + text + reset
		}
		b.WriteString(text)
	}
	return strings.TrimRight(b.String(), " ")
}

// wrap breaks text into lines of at most width columns, and at most so many lines, unless most is 0. A word that is
// wider than a line is broken.
func wrap(s style, indent, text string, width, most int) []line {
	text = words.Line(text)
	room := max(width-runewidth.StringWidth(indent), 8)
	if width == 0 {
		return []line{{{plain, indent}, {s, text}}}
	}
	var rows []string
	row := ""
	for _, word := range strings.Fields(text) {
		for runewidth.StringWidth(word) > room { // such as a path
			if row != "" {
				rows, row = append(rows, row), ""
			}
			head := runewidth.Truncate(word, room, "")
			if head == "" {
				break
			}
			rows, word = append(rows, head), word[len(head):]
		}
		switch {
		case row == "":
			row = word
		case runewidth.StringWidth(row)+1+runewidth.StringWidth(word) <= room:
			row += " " + word
		default:
			rows, row = append(rows, row), word
		}
	}
	if row != "" || len(rows) == 0 {
		rows = append(rows, row)
	}
	if most > 0 && len(rows) > most {
		rows = rows[:most]
		rows[most-1] = runewidth.Truncate(rows[most-1], room-1, "") + "…"
	}
	lines := make([]line, len(rows))
	for i, row := range rows {
		lines[i] = line{{plain, indent}, {s, row}}
	}
	return lines
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func ageText(d time.Duration) string { return words.Round(max(d, 0)).String() }
