package job

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns a terminal's program side, and its keyboard and screen side.
func openTerminal(t *testing.T) (program, person *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return program, person
}

func TestTypingReachesRankZero(t *testing.T) {
	program, person := openTerminal(t)
	j := begin(t, "cat", Config{Stdin: program})
	if _, err := person.WriteString("typed\n\x04"); err != nil { // a line, and the end of input
		t.Fatal(err)
	}
	j.await("[0] typed", "[0] read 6 <nil>")
	j.end()
}

func TestTerminalThatSaysNothingHoldsNobodyUp(t *testing.T) {
	program, _ := openTerminal(t)
	j := begin(t, "env", Config{Stdin: program})
	if r := j.end(); r.ExitCode() != 0 {
		t.Error(r)
	}
}
