// Package term tells whether an output is a terminal, how wide it is, and whether to use colours on it.
package term

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/term"
)

// ColorMode says when an output is coloured. A *ColorMode is the value of a flag.
type ColorMode string

// The modes of colouring. The zero ColorMode is ColorAuto.
const (
	ColorAuto   ColorMode = "auto" // on a terminal, unless NO_COLOR is set or TERM is dumb
	ColorAlways ColorMode = "always"
	ColorNever  ColorMode = "never"
)

// ColorModes are all of them.
func ColorModes() []string {
	return []string{string(ColorAuto), string(ColorAlways), string(ColorNever)}
}

// Set implements pflag.Value.
func (m *ColorMode) Set(text string) error {
	if *m = ColorMode(text); !slices.Contains(ColorModes(), text) {
		return errors.New("allowed is auto, always or never")
	}
	return nil
}

// String implements pflag.Value.
func (m *ColorMode) String() string { return string(*m) }

// Type implements pflag.Value.
func (*ColorMode) Type() string { return "string" }

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

// Width is the terminal's number of columns; 0 if w is no terminal or its width isn't known.
func Width(w any) int {
	if !IsTerminal(w) {
		return 0
	}
	columns, _, _ := term.GetSize(int(w.(*os.File).Fd()))
	return columns
}
