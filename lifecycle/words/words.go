// Package words formats the common parts of this runtime's sentences (ranks, lists, durations) in one way everywhere.
// Numbers of bytes are humanize.IBytes' of github.com/dustin/go-humanize.
package words

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// most is how many items a list names.
const most = 8

// Ranks names ranks, in any order: "rank 3", "ranks 0 to 2 and 5", "no rank".
func Ranks(ranks []int) string {
	if len(ranks) == 0 {
		return "no rank"
	}
	word := "rank "
	if slices.ContainsFunc(ranks, func(r int) bool { return r != ranks[0] }) {
		word = "ranks "
	}
	return word + Numbers(ranks)
}

// Numbers lists numbers, each once and in order: "0 to 2 and 5". For a long list, it names the beginning and the number
// of further ones: "0, 2, 4, 6, 8, 10, 12, 14 and 92 more".
func Numbers(numbers []int) string {
	numbers = slices.Compact(slices.Sorted(slices.Values(numbers)))
	var parts []string
	at := 0
	for at < len(numbers) && len(parts) < most {
		to := at
		for to+1 < len(numbers) && numbers[to+1] == numbers[to]+1 {
			to++
		}
		if to-at < 2 {
			to = at
			parts = append(parts, strconv.Itoa(numbers[at]))
		} else {
			parts = append(parts, strconv.Itoa(numbers[at])+" to "+strconv.Itoa(numbers[to]))
		}
		at = to + 1
	}
	return list(parts, len(numbers)-at)
}

// List is "a", "a and b" or "a, b and c"; a long one ends with "and 92 more".
func List(items []string) string {
	shown := items[:min(len(items), most)]
	return list(shown, len(items)-len(shown))
}

func list(items []string, more int) string {
	if more > 0 {
		return strings.Join(items, ", ") + " and " + strconv.Itoa(more) + " more"
	}
	if len(items) < 2 {
		return strings.Join(items, "")
	}
	last := len(items) - 1
	return strings.Join(items[:last], ", ") + " and " + items[last]
}

// Captured says how many operations of a communicator were captured in graphs.
func Captured(operations uint64) string {
	noun := "operations"
	if operations == 1 {
		noun = "operation"
	}
	return fmt.Sprintf("%d %s captured in CUDA graphs, whose replays are not seen", operations, noun)
}

// Round rounds a duration for people: to three digits, and to whole seconds from a minute on. Its String is "12.3ms",
// "3.21s" or "1m23s".
func Round(d time.Duration) time.Duration {
	size, unit := d.Abs(), time.Nanosecond
	if size >= time.Minute {
		return d.Round(time.Second)
	}
	for size >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit)
}

// Clip returns text as valid UTF-8 of at most n bytes. A longer text is cut, and ends with "…".
func Clip(text string, n int) string {
	const mark = "…"
	if text = strings.ToValidUTF8(text, "\uFFFD"); len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:max(n-len(mark), 0)], "") + mark
}

// Line returns untrusted text on one line, for a terminal or a log: line breaks become "; ", tabs become spaces, and
// other control characters, and those that change the direction of text, become visible ("\\u001b").
func Line(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("\n\r\u2028\u2029", r) })
	var b strings.Builder
	for _, r := range strings.Join(lines, "; ") {
		switch {
		case r == '\t':
			b.WriteByte(' ')
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
