package find

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// deny removes the permission to read folders for the rest of the test.
func deny(t *testing.T, folders ...string) {
	t.Helper()
	for _, dir := range folders {
		if err := os.Chmod(dir, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(dir, 0o700) }) // so that it can be removed
	}
	if os.Geteuid() != 0 {
		return
	}
	runtime.LockOSThread() // root may read all: this thread, which ends with the test, gets another user's rights
	if err := unix.Setfsuid(54321); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setfsuid(0) })
}

// TestFoldersOfAnotherUser: the error says that a folder may not be read, not that it is empty.
func TestFoldersOfAnotherUser(t *testing.T) {
	open, closed := t.TempDir(), filepath.Join(t.TempDir(), "closed")
	if err := errors.Join(os.Mkdir(closed, 0o700), os.Chmod(filepath.Dir(open), 0o755)); err != nil {
		t.Fatal(err)
	}
	newTape(t, open, "theirs")
	newTape(t, closed, "hidden")
	deny(t, closed, filepath.Join(open, "theirs"))
	for what, tapes := range map[string]string{
		closed: "", filepath.Join(closed, "hidden"): "", filepath.Join(open, "theirs"): "", "theirs": open,
		"hidden": closed, "": closed,
	} {
		t.Setenv(tape.DirVariable, tapes)
		if job, err := Find(what); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%q in %q finds %+v, %v; want that permission is denied", what, tapes, job, err)
		}
	}
	var missing *NotFoundError
	if _, err := Find(open); !errors.As(err, &missing) || !strings.Contains(err.Error(), "theirs: permission denied") {
		t.Errorf("beside a job of another user: %v; want a NotFoundError that names it", err)
	}
}

// TestSilence: there are several reasons why a job can't be asked, and each has its own advice.
func TestSilence(t *testing.T) {
	dir := t.TempDir()
	read := func(name string, watched bool) (*Job, *tape.Writer) {
		w, err := tape.Create(tape.Config{
			Dir: dir, Job: name, Slots: 1, LifeRecords: 1, OpRecords: 1, Watched: watched,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.Close() })
		job, err := Read(filepath.Dir(w.Path()))
		if err != nil {
			t.Fatal(err)
		}
		return job, w
	}
	own, _ := read("own", true)
	alone, w := read("alone", false)
	refused := fmt.Errorf("it can't be reached: %w", unix.ECONNREFUSED)
	for _, c := range []struct {
		said, want string
	}{
		{own.Silence(), "has no health endpoint here (CARILLON_HEALTH_ADDR)"},
		{own.Silence(refused), ""},
		{alone.Silence(), "no agent with a health endpoint follows it here: start carillon agent"},
		{alone.Silence(refused, refused), "the agent that followed it has ended: start carillon agent"},
		{alone.Silence(refused, fs.ErrInvalid), ""},
	} {
		if !strings.Contains(c.said, c.want) || c.want == "" && c.said != "" {
			t.Errorf("it says %q, want %q", c.said, c.want)
		}
	}
	if _, err := health.WriteAddress(w.Path(), "http://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Dir(dir), dir, filepath.Dir(w.Path()), w.Path()} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	deny(t, strings.TrimSuffix(w.Path(), ".tape")+".health")
	theirs, err := Read(filepath.Dir(w.Path()))
	if err != nil {
		t.Fatal(err)
	}
	if said, want := theirs.Silence(), "answers only its own user and root"; !strings.Contains(said, want) {
		t.Errorf("it says %q, want %q", said, want)
	}
}
