package term

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens the program side of a pseudo-terminal with so many columns.
func terminal(t *testing.T, columns uint16) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: 24}); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTerminal(t *testing.T) {
	tty := terminal(t, 93)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if !IsTerminal(tty) || IsTerminal(file) || IsTerminal((*os.File)(nil)) || IsTerminal(t) {
		t.Error("a terminal is not told from what is none")
	}
	if w := Width(tty); w != 93 {
		t.Errorf("the terminal has %d columns, want 93", w)
	}
	if Width(file) != 0 || Width(nil) != 0 {
		t.Error("a file has a width")
	}
	for _, c := range []struct {
		mode          ColorMode
		noColor, term string
		w             any
		want          bool
	}{
		{ColorAuto, "", "", tty, true},
		{ColorAuto, "", "", file, false},
		{"", "", "", tty, true},
		{ColorAuto, "1", "", tty, false},
		{ColorAuto, "", "dumb", tty, false},
		{ColorAlways, "1", "", file, true},
		{ColorNever, "", "", tty, false},
	} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)
		if got := c.mode.On(c.w); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
