package job

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// unread returns a pipe that is full, and its reading end, which the test closes.
func unread(t *testing.T) (w, r *os.File) {
	t.Helper()
	r, w = pipe(t)
	fd := int(w.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil {
		_, err = unix.Write(fd, make([]byte, 4<<10))
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	return w, r
}

// endUnread is end for a job whose output nobody reads.
func (j *underTest) endUnread(r *os.File) *Result {
	j.t.Helper()
	select {
	case <-j.done:
	case <-time.After(20 * time.Second):
		r.Close() // ends the launcher's wait
		j.t.Fatal("the launcher waits for the reader of its output")
	}
	return j.end()
}

// TestUnreadMessagesHoldNothingUp: the launcher ends its ranks though nobody reads its messages.
func TestUnreadMessagesHoldNothingUp(t *testing.T) {
	for name, c := range map[string]struct {
		grace   time.Duration
		signals []os.Signal
	}{
		"grace":         {time.Millisecond, []os.Signal{unix.SIGTERM}},
		"second signal": {time.Hour, []os.Signal{unix.SIGTERM, unix.SIGINT}},
	} {
		t.Run(name, func(t *testing.T) {
			tapes := t.TempDir()
			if err := os.Mkdir(filepath.Join(tapes, "unread"), 0o700); err != nil {
				t.Fatal(err)
			}
			w, r := unread(t)
			j := begin(t, "stubborn", Config{
				Ranks: 2, Grace: c.grace, Stderr: w, Name: "unread", TapesAt: tapes,
				AtEnd: func(context.Context) string { return "sent what was left" },
			})
			j.ready(2)
			for _, sig := range c.signals {
				j.signals <- sig
			}
			for _, o := range j.endUnread(r).Outcomes {
				if o.Asked != unix.SIGKILL {
					t.Errorf("rank %d %s", o.Rank, o.how())
				}
			}
			entries, err := process.ReadLedger(filepath.Join(tapes, "unread", process.Ledger))
			if err != nil || len(entries) < 2 || entries[1].Ended != "SIGTERM" { // behind the launcher's start
				t.Errorf("ledger %v, %v", entries, err)
			}
		})
	}
}

// TestUnreadOutputHoldsNoEndUp: the ranks' output, which nobody reads, delays the end of the launcher only for a time.
func TestUnreadOutputHoldsNoEndUp(t *testing.T) {
	w, r := unread(t)
	j := begin(t, "complaint", Config{Ranks: 2, Grace: time.Hour, Quiet: true, Stderr: w})
	j.ready(2)
	j.signals <- syscall.SIGINT
	if r := j.endUnread(r); r.ExitCode() != 128+2 {
		t.Errorf("exit code %d: %s", r.ExitCode(), r)
	}
}

// TestSignalEndsTheWaitForAReader: a job that ended by itself waits for its reader, until it gets a signal.
func TestSignalEndsTheWaitForAReader(t *testing.T) {
	w, r := unread(t)
	ended := make(chan struct{})
	j := begin(t, "fail", Config{Stderr: w, AtEnd: func(context.Context) string {
		close(ended)
		return ""
	}})
	<-ended
	j.signals <- syscall.SIGINT
	if r := j.endUnread(r); r.ExitCode() != 5 {
		t.Errorf("exit code %d: %s", r.ExitCode(), r)
	}
}

// slowReader is a stream whose reader takes a piece from time to time.
type slowReader struct {
	every time.Duration
	read  strings.Builder
}

func (r *slowReader) Write(text []byte) (int, error) {
	time.Sleep(r.every) // virtual time
	return r.read.Write(text)
}

// TestSlowReaderGetsAll: a console in a hurry drops nothing as long as its reader reads on.
func TestSlowReaderGetsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &slowReader{every: patience / 2}
		c := newConsole(out, 0, 1, false, func(err error) { t.Error(err) })
		c.hurry()
		line := strings.Repeat("x", 2*piece) + "\n"
		for range room / piece {
			c.write(0, []byte(line))
		}
		shown(c)
		if want := strings.Repeat("[0] "+line, room/piece); out.read.String() != want {
			t.Errorf("got %d bytes, want %d", out.read.Len(), len(want))
		}
	})
}

// TestUnreadConsoleGivesUp: once the job is told to end, a console waits for its reader for patience, and not longer.
func TestUnreadConsoleGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		defer r.Close()
		c := newConsole(w, 0, 1, false, func(err error) { t.Error(err) })
		var writes sync.WaitGroup
		writes.Go(func() {
			for range 3 {
				c.write(0, make([]byte, room))
			}
		})
		c.say("a message waits for nobody")
		began := time.Now()
		c.hurry()
		writes.Wait()
		shown(c)
		if took := time.Since(began); took != patience {
			t.Errorf("gave up after %s", took)
		}
	})
}

// TestLateReaderGetsAll: what a rank wrote before it ended is shown, even if a process that it left behind holds the
// pipe, and the reader of the console reads on only when that one is not waited for any more.
func TestLateReaderGetsAll(t *testing.T) {
	r, stream := pipe(t)
	if _, err := unix.FcntlInt(stream.Fd(), unix.F_SETPIPE_SZ, piece); err != nil {
		t.Fatal(err)
	}
	c := newConsole(stream, 0, 1, false, func(err error) { t.Error(err) })
	o := newOutput(0, c, nil)
	p, w, err := newPipe(o)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	line := strings.Repeat("x", piece-1) + "\n"
	text := strings.Repeat(line, 2*room/piece)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	p.end(time.Now())
	got := make(chan string)
	go func() {
		text, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		got <- string(text)
	}()
	<-p.over
	o.finish()
	shown(c)
	stream.Close()
	if text := <-got; text != strings.Repeat("[0] "+line, 2*room/piece) {
		t.Errorf("got %d bytes", len(text))
	}
}
