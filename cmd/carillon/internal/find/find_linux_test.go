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

// asStranger runs the rest of the test with another user's rights to files. It needs root.
func asStranger(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	runtime.LockOSThread() // for good, so that the thread ends with the test
	if err := unix.Setfsuid(54321); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setfsuid(0) }) // to remove the folders
}

// TestFoldersOfAnotherUser: it is said that a folder may not be read, not that there is nothing in it.
func TestFoldersOfAnotherUser(t *testing.T) {
	open, closed := t.TempDir(), filepath.Join(t.TempDir(), "closed")
	if err := errors.Join(os.Mkdir(closed, 0o700), os.Chmod(filepath.Dir(open), 0o755)); err != nil {
		t.Fatal(err)
	}
	newTape(t, open, "theirs")
	newTape(t, closed, "hidden")
	asStranger(t)
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
