package tape

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// cut is the beginning of s, at most n bytes, with no character cut in two and nothing behind a NUL.
func cut(s string, n int) string {
	s, _, _ = strings.Cut(s, "\x00")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// cutFront is the end of s, at most n bytes: the telling part of a file's name.
func cutFront(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}

// putText writes s into a field, with at least one NUL behind it.
func putText(b []byte, s string) { copy(b[:len(b)-1], cut(s, len(b)-1)) }

// getText reads a text field: what is before the first NUL.
func getText(b []byte) []byte {
	before, _, _ := bytes.Cut(b, []byte{0})
	return before
}

// text is a text that is read again and again, and makes no new string unless it has changed.
type text string

func (t *text) read(b []byte) string {
	if now := getText(b); string(now) != string(*t) { // allocates nothing
		*t = text(now)
	}
	return string(*t)
}

// texts are those of a slot or a tally.
type texts struct{ engine, name text }

// textsOf are the texts of number i, of which all makes room.
func textsOf(all *[]texts, i int) *texts {
	for len(*all) <= i {
		*all = append(*all, texts{})
	}
	return &(*all)[i]
}
