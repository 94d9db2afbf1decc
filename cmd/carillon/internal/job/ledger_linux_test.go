package job

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// TestLedgerWaitsForItsFolder: a rank may end before another one has made the job's folder. Its end is noted when the
// folder is there, with the time of the end.
func TestLedgerWaitsForItsFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job")
	l := ledger{dir: dir, began: process.Monotonic()}
	if l.again() != nil {
		t.Error("it waits for a folder, and has nothing to write")
	}
	l.note(process.Entry{Rank: 1, PID: 17})
	noted, next := process.Monotonic(), l.next
	for range 100 { // as often as the launcher hears of other things meanwhile
		l.again()
	}
	if !l.next.Equal(next) {
		t.Errorf("the next look for the folder was put off by %v", l.next.Sub(next))
	}
	<-l.again()
	l.write()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	<-l.again()
	l.write()
	l.note(process.Entry{Ended: "SIGINT"})
	if l.again() != nil {
		t.Error("it still waits")
	}
	entries, err := process.ReadLedger(filepath.Join(dir, process.Ledger))
	if err != nil || len(entries) != 2 || entries[0].PID != 17 || entries[0].Mono > noted ||
		entries[0].Began != l.began || entries[1].Ended != "SIGINT" {
		t.Errorf("%+v, %v", entries, err)
	}
}

// TestForwardedSignalIsNoted: a signal that the launcher only passes on is in the ledger, as it may end the ranks.
func TestForwardedSignalIsNoted(t *testing.T) {
	tapes := t.TempDir()
	j := begin(t, "ledger", Config{Ranks: 2, Grace: time.Hour, Name: "told", TapeDir: tapes, TapesAt: tapes})
	j.ready(2)
	j.signals <- syscall.SIGUSR2
	j.signals <- syscall.SIGINT
	j.end()
	entries, err := process.ReadLedger(filepath.Join(tapes, "told", process.Ledger))
	var noted []string
	for _, e := range entries {
		if e.PID == 0 && e.Forwarded+e.Ended != "" {
			noted = append(noted, e.Forwarded+e.Ended)
		}
	}
	if want := []string{"SIGUSR2", "SIGINT"}; err != nil || !slices.Equal(noted, want) {
		t.Errorf("the ledger has %q, want %q (%v)", noted, want, err)
	}
}

// TestEndIsNotedBeforeTheRanksKnow: a rank that is told to end by its launcher, and whatever comes of that, finds the
// reason in the ledger.
func TestEndIsNotedBeforeTheRanksKnow(t *testing.T) {
	tapes := t.TempDir()
	j := begin(t, "ledger", Config{Ranks: 2, Grace: time.Hour, Name: "told", TapeDir: tapes, TapesAt: tapes})
	j.ready(2)
	j.signals <- syscall.SIGINT
	j.end()
	lines := j.rest()
	slices.Sort(lines)
	if want := []string{"[0] noted SIGINT <nil>", "[1] noted SIGINT <nil>"}; !slices.Equal(lines, want) {
		t.Errorf("the ranks found %q, want %q", lines, want)
	}
}
