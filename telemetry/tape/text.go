package tape

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// cut returns the beginning of s, at most n bytes, with no split character and nothing after a NUL.
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

// cutFront returns the end of s, at most n bytes: the part of a path that matters most.
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

// getText reads a text field, up to the first NUL.
func getText(b []byte) []byte {
	before, _, _ := bytes.Cut(b, []byte{0})
	return before
}

// texts interns texts that are read repeatedly.
type texts map[string]string

// maxTexts bounds the memory of a reader.
const maxTexts = 1 << 15

func (t texts) read(b []byte) string {
	b = getText(b)
	s, known := t[string(b)] // allocates nothing
	if !known {
		if len(t) >= maxTexts {
			clear(t)
		}
		s = string(b)
		t[s] = s
	}
	return s
}
