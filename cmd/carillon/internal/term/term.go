// Package term tells whether an output is a terminal, how wide it is, and whether to use colours on it.
package term

import (
	"os"

	"golang.org/x/term"
)

// ColorMode says when an output is coloured.
type ColorMode string

// The modes of colouring. The zero ColorMode is ColorAuto.
const (
	ColorAuto   ColorMode = "auto" // on a terminal, unless NO_COLOR is set or TERM is dumb
	ColorAlways ColorMode = "always"
	ColorNever  ColorMode = "never"
)

// On says whether output on w is coloured in this mode.
func (m ColorMode) On(w any) bool {
	auto := m != ColorNever && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && IsTerminal(w)
	return m == ColorAlways || auto
}

// IsTerminal says whether w is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Width is the terminal's number of columns; 0 if w is no terminal or its width is unknown.
func Width(w any) int {
	if !IsTerminal(w) {
		return 0
	}
	columns, _, _ := term.GetSize(int(w.(*os.File).Fd()))
	return columns
}
