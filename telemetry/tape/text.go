package tape

import (
	"bytes"
	"unicode/utf8"
)

// cut is the beginning of s, at most n bytes, with no character cut in two and nothing behind a NUL.
func cut(s string, n int) string {
	for i := range min(len(s), n) {
		if s[i] == 0 {
			return s[:i]
		}
	}
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

// getText reads a text field: what is before the first NUL.
func getText(b []byte) []byte {
	if end := bytes.IndexByte(b, 0); end >= 0 {
		return b[:end]
	}
	return b
}
