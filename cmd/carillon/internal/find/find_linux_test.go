package find

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

// deny takes the right to read folders from the rest of the test.
func deny(t *testing.T, folders ...string) {
	t.Helper()
	for _, dir := range folders {
		if err := os.Chmod(dir, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(dir, 0o700) }) // to remove it
	}
	if os.Geteuid() != 0 {
		return
	}
	runtime.LockOSThread() // root may read all: this thread, which ends with the test, has another user's rights
	if err := unix.Setfsuid(54321); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setfsuid(0) })
}

// TestFoldersOfAnotherUser: it is said that a folder may not be read, not that there is nothing in it.
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
