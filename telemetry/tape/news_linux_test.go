package tape_test

import (
	"path/filepath"
	"testing"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestNews: a new job's folder and a new tape in it are reported, until News is closed.
func TestNews(t *testing.T) {
	dir := t.TempDir()
	n, err := tape.NewNews()
	if err != nil {
		t.Fatal(err)
	}
	n.Add(dir)
	n.Add(filepath.Join(dir, "j")) // it isn't there
	if err := tape.MakeJob(dir, "j"); err != nil || n.Wait() != nil {
		t.Fatal(err)
	}
	n.Add(filepath.Join(dir, "j"))
	w, err := tape.Create(tape.Config{Dir: dir, Job: "j", Size: tape.MinSize})
	if err != nil || n.Wait() != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil || n.Close() != nil || n.Wait() == nil {
		t.Error("it waits for more, or can't be closed")
	}
}
