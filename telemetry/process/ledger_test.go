package process_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// TestLedger: entries are read back in order; an entry with a time keeps it.
func TestLedger(t *testing.T) {
	dir := t.TempDir()
	told := process.Entry{Ended: "SIGTERM"}.Now()
	end := process.Entry{Rank: 3, PID: 17, Exit: process.Exit{Known: true, Signal: syscall.SIGKILL}}
	for _, e := range []process.Entry{end, told} {
		if err := process.AppendEntry(dir, e); err != nil {
			t.Fatal(err)
		}
	}
	long := process.Entry{Ended: strings.Repeat("x", 1<<17)}
	if err := process.AppendEntry(dir, long); err == nil {
		t.Error("an entry is appended behind which nothing could be read")
	}
	got, err := process.ReadLedger(filepath.Join(dir, process.Ledger))
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got[0].Rank != 3 || got[0].PID != 17 || got[0].Exit != end.Exit || got[0].Mono < told.Mono ||
		got[0].Boot == "" || got[0].PIDSpace != process.Self().PIDSpace {
		t.Errorf("got %+v, noted %+v", got[0], end)
	}
	if got[1].Ended != "SIGTERM" || got[1].Mono != told.Mono || !got[1].Time.Equal(told.Time.Round(time.Nanosecond)) {
		t.Errorf("got %+v, noted %+v", got[1], told)
	}
}

// TestOfRun: of a folder in which a job ran several times, a process gets what its own launcher noted.
func TestOfRun(t *testing.T) {
	entry := func(at, began int64, what string) process.Entry {
		e := process.Entry{Ended: what}.Now()
		e.Mono, e.Began = at, began
		return e
	}
	elsewhere, program := entry(45, 40, "on another boot"), entry(46, 40, "a program's end")
	elsewhere.Boot, program.Program = "another", true
	entries := []process.Entry{
		entry(5, 0, "by an agent"), entry(20, 10, "before"), entry(50, 40, "a rank's end"), elsewhere, program,
		entry(60, 40, "the job's end"), entry(90, 80, "after"),
	}
	for _, c := range []struct {
		at   int64
		want []string
	}{
		{9, nil},
		{40, []string{"a rank's end", "the job's end", "after"}},
		{79, []string{"a rank's end", "the job's end", "after"}},
		{80, []string{"after"}},
	} {
		var got []string
		for _, e := range process.OfRun(entries, c.at) {
			got = append(got, e.Ended)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("at %d: %q, want %q", c.at, got, c.want)
		}
	}
}

// TestLedgerIsFull: entries about devices leave room for entries about ends of processes.
func TestLedgerIsFull(t *testing.T) {
	dir := t.TempDir()
	seen := process.Entry{Rank: 1, PID: 17, Stays: json.RawMessage(`{"1":"` + strings.Repeat("x", 1<<16) + `"}`)}
	var err error
	n := 0
	for ; err == nil && n < 1<<10; n++ {
		err = process.AppendEntry(dir, seen)
	}
	if err == nil {
		t.Errorf("%d entries of 64 KiB are not too many", n)
	}
	if err := process.AppendEntry(dir, process.Entry{Ended: "SIGTERM"}); err != nil {
		t.Error(err)
	}
	got, err := process.ReadLedger(filepath.Join(dir, process.Ledger))
	if err != nil || len(got) != n || got[n-1].Ended != "SIGTERM" {
		t.Errorf("%d entries, %v; want %d and the signal", len(got), err, n)
	}
}

// TestLedgerStaysInItsFolder: an agent may have more rights than the users who write in the folder, and the folder's
// owner may be checked too late.
func TestLedgerStaysInItsFolder(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, process.Ledger)
	if err := os.Symlink(other, path); err != nil {
		t.Fatal(err)
	}
	if err := process.AppendEntry(dir, process.Entry{Ended: "SIGTERM"}); err == nil {
		t.Error("it follows a link out of the folder")
	}
	if text, err := os.ReadFile(other); err != nil || len(text) > 0 {
		t.Errorf("%q is in another file, %v", text, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := process.AppendEntry(dir, process.Entry{Ended: "SIGTERM"}); err == nil {
		t.Error("it writes into a pipe that nobody reads")
	}
}

// TestLedgerTail: each time, the launcher's new entries come behind those before; a line that isn't whole yet waits,
// and one that can't be read is left out.
func TestLedgerTail(t *testing.T) {
	dir := t.TempDir()
	tail := process.LedgerTail{Path: filepath.Join(dir, process.Ledger)}
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(tail.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() //nolint:errcheck // the next step fails
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		more string
		want []int // ranks
	}{
		{"", nil},
		{`{"rank":1,"began":7}` + "\n" + `{"rank":2}` + "\n", []int{1}},
		{`{"rank":3,"be`, []int{1}},
		{`gan":7}` + "\n" + "{\n" + `{"rank":4,"began":7}` + "\n", []int{1, 3, 4}},
		{`{"rank":5,"began":7,"program":true}` + "\n", []int{1, 3, 4}},
	} {
		write(c.more)
		var ranks []int
		for _, e := range tail.Runs() {
			ranks = append(ranks, e.Rank)
		}
		if !slices.Equal(ranks, c.want) {
			t.Errorf("behind %q: ranks %v, want %v", c.more, ranks, c.want)
		}
	}
}
