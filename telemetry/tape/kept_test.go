package tape_test

import (
	"os"
	"testing"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestKept: another process sets the same header fields as the writer would, and the writer goes on.
func TestKept(t *testing.T) {
	w, err := tape.Create(tape.Config{Dir: t.TempDir(), Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	k, err := tape.OpenKept(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	k.Exporter(1<<63 | 7)
	k.Delivered(11)
	k.Resumed(12, 13, 14)
	k.Numbered(15)
	h := k.Header()
	if h.Exporter != 1<<63|7 || h.Delivered != 11 || h.Paused != 12 || h.Resumed != 13 || h.Starved != 14 ||
		h.KnownPID() != 15 || h.PID != os.Getpid() || h.Seen+h.Exported != 0 {
		t.Errorf("it reads %+v", h)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if !k.Header().Closed {
		t.Error("the writer's end is not read")
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if _, err := tape.OpenKept(w.Path() + "x"); err == nil {
		t.Error("a tape that isn't there is opened")
	}
}

// TestMakeJob: a folder in which others could put tapes is refused, and so is an invalid name.
func TestMakeJob(t *testing.T) {
	dir := t.TempDir()
	if err := tape.MakeJob(dir, "j"); err != nil {
		t.Error(err)
	}
	if err := tape.MakeJob(dir, "j"); err != nil {
		t.Errorf("once more: %v", err)
	}
	for _, bad := range []string{"a/b", ".."} {
		if err := tape.MakeJob(dir, bad); err == nil {
			t.Errorf("a job is called %q", bad)
		}
	}
	if err := tape.MakeJob("/dev/null", "j"); err == nil {
		t.Error("a file is taken for a folder")
	}
}
