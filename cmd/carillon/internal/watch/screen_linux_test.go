package watch

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/view"
)

// pseudoterminal is the two sides of a terminal: the user's, and the program's.
func pseudoterminal(t *testing.T, columns, rows uint16) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close() })
	if err := unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	resize(t, program, columns, rows)
	return user, program
}

func resize(t *testing.T, f *os.File, columns, rows uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		t.Fatal(err)
	}
}

// read returns what the program has written until some text came.
func read(t *testing.T, user *os.File, until string) string {
	t.Helper()
	var all bytes.Buffer
	buf := make([]byte, 1<<16)
	for !strings.Contains(all.String(), until) {
		n, err := user.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, &all)
		}
		all.Write(buf[:n])
	}
	return all.String()
}

func TestScreen(t *testing.T) {
	for _, key := range []string{"q", "\x03"} {
		user, program := pseudoterminal(t, 60, 10)
		before, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		s, end, err := NewScreen(program, program, false)
		if err != nil {
			t.Fatal(err)
		}
		report := &view.Report{Job: "train", Size: 2, Status: "critical", Time: time.Now()}
		s.State(report, "")
		if frame := read(t, user, "q quits"); !strings.HasPrefix(frame, enterScreen+beginFrame+"train: CRITICAL") ||
			strings.Count(frame, "\r\n") != 9 {
			t.Errorf("the first frame is %q", frame)
		}
		s.State(report, "") // nothing has changed, so nothing is written
		resize(t, program, 60, 7)
		s.State(report, "")
		if frame := read(t, user, "q quits"); !strings.HasPrefix(frame, beginFrame) ||
			strings.Count(frame, "\r\n") != 6 {
			t.Errorf("the second frame is %q, want one of 7 rows", frame)
		}
		if _, err := user.WriteString("x" + key); err != nil {
			t.Fatal(err)
		}
		select {
		case <-s.Quit():
		case <-time.After(20 * time.Second):
			t.Fatalf("%q doesn't end it", key)
		}
		end()
		end()
		if text := read(t, user, leaveScreen); !strings.HasSuffix(text, leaveScreen) {
			t.Errorf("the end is %q", text)
		}
		if after, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS); err != nil || *after != *before {
			t.Errorf("the terminal isn't as it was: %+v, %v; want %+v", after, err, before)
		}
	}
}

// TestScreenRedraws: the screen redraws when the terminal's size changes, even without a keyboard to end it.
func TestScreenRedraws(t *testing.T) {
	_, program := pseudoterminal(t, 60, 10)
	s, end, err := NewScreen(program, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Redraw():
	case <-time.After(20 * time.Second):
		t.Error("it isn't drawn again")
	}
}
