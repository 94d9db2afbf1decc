package job

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// shown closes a console, and waits until it has shown all.
func shown(c *console) {
	c.close()
	<-c.over
}

func TestConsoleKeepsLinesApart(t *testing.T) {
	type piece struct {
		rank int
		text string
	}
	for name, c := range map[string]struct {
		pieces []piece
		want   string
	}{
		"whole lines":    {[]piece{{0, "a\nb\n"}, {10, "c\n"}}, "[0]  a\n[0]  b\n[10] c\n"},
		"an empty line":  {[]piece{{0, "\n\n"}}, "[0]  \n[0]  \n"},
		"continued":      {[]piece{{0, "a"}, {0, "b\n"}, {0, "c\n"}}, "[0]  ab\n[0]  c\n"},
		"interrupted":    {[]piece{{0, "a"}, {1, "x\n"}, {0, "b\n"}}, "[0]  a\n[1]  x\n[0]  b\n"},
		"two unfinished": {[]piece{{0, "a"}, {1, "x"}, {0, "b\n"}}, "[0]  a\n[1]  x\n[0]  b\n"},
		"interrupted by remarks": {
			[]piece{{0, "a"}, {own, "carillon: x\n"}, {0, "b\n"}}, "[0]  a\ncarillon: x\n[0]  b\n",
		},
		"carriage returns": {[]piece{{0, "10%\r20%\r\n30%\r"}}, "[0]  10%\n[0]  20%\n[0]  30%\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			con := newConsole(&out, 0, 11, false, func(err error) { t.Error(err) })
			for _, p := range c.pieces {
				con.write(p.rank, []byte(p.text))
			}
			shown(con)
			if out.String() != c.want {
				t.Errorf("got\n%swant\n%s", out.String(), c.want)
			}
		})
	}
}

func TestConsoleColors(t *testing.T) {
	var out bytes.Buffer
	con := newConsole(&out, 4, 2, true, nil)
	con.write(0, []byte("x\n"))
	con.write(1, []byte("y\n"))
	shown(con)
	if want := "\x1b[34m[4]\x1b[0m x\n\x1b[31m[5]\x1b[0m y\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestConsoleFailsOnce(t *testing.T) {
	broken := errors.New("broken")
	var failures []error
	con := newConsole(brokenWriter{broken}, 0, 1, false, func(err error) { failures = append(failures, err) })
	con.write(0, []byte("a\n"))
	con.write(0, []byte("b\n"))
	shown(con)
	if len(failures) != 1 || !errors.Is(failures[0], broken) {
		t.Errorf("failures %v", failures)
	}
}

func TestOutputShowsEverything(t *testing.T) {
	long := strings.Repeat("x", 3*longest+5)
	for name, text := range map[string]string{
		"nothing":               "",
		"a line":                "a\n",
		"no end of line":        "a\nb",
		"longer than held back": long + "\nshort\n",
		"long without end":      long,
		"ends in the middle":    strings.Repeat("y", longest) + "\r\n" + "z\n",
		"full of ends":          strings.Repeat("\n", 2*longest),
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			con := newConsole(&out, 0, 1, false, func(err error) { t.Error(err) })
			o := newOutput(0, con, nil)
			if _, err := io.CopyBuffer(o, struct{ io.Reader }{strings.NewReader(text)},
				make([]byte, 4095)); err != nil {
				t.Fatal(err)
			}
			o.finish()
			shown(con)
			var want strings.Builder
			for line := range strings.Lines(text) {
				want.WriteString("[0] " + strings.TrimRight(line, "\r\n") + "\n")
			}
			if out.String() != want.String() {
				t.Errorf("got %d bytes, want %d", out.Len(), want.Len())
			}
		})
	}
}

func TestFullDiskEndsTheLogOnly(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var failures []error
	l := &logFile{f: full, failed: func(err error) { failures = append(failures, err) }}
	l.write([]byte("a"))
	l.write([]byte("b"))
	l.close()
	if len(failures) != 1 {
		t.Errorf("failures %v", failures)
	}
}
