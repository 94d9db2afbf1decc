// Package term tells what an output is: a terminal or not, how wide, and whether colours are wanted on it.
package term

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ColorMode says when an output is coloured.
type ColorMode string

// The modes of colouring.
const (
	ColorAuto   ColorMode = "auto" // on a terminal, unless NO_COLOR is set or TERM is dumb
	ColorAlways ColorMode = "always"
	ColorNever  ColorMode = "never"
)

// Validate names the modes if it is none of them.
func (m ColorMode) Validate() error {
	switch m {
	case ColorAuto, ColorAlways, ColorNever:
		return nil
	}
	return fmt.Errorf("--color is %q, allowed is auto, always or never", string(m))
}

// Colored says whether output on w is coloured in this mode, with an environment as os.Environ has it.
func Colored(mode ColorMode, environ []string, w any) bool {
	switch mode {
	case ColorAlways:
		return true
	case ColorNever:
		return false
	case ColorAuto:
	}
	for _, kv := range environ {
		if name, value, _ := strings.Cut(kv, "="); (name == "NO_COLOR" && value != "") ||
			(name == "TERM" && value == "dumb") {
			return false
		}
	}
	return IsTerminal(w)
}

// IsTerminal says whether w is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok || f == nil {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Width is how many columns the terminal has; 0 for what is no terminal, or one that doesn't tell.
func Width(w any) int {
	f, ok := w.(*os.File)
	if !ok || f == nil {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
