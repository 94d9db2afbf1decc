package tape

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/process"
)

func TestCreateRefuses(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(t *testing.T, dir string)
		cfg     Config
		says    []string
	}{
		{name: "slash in job", cfg: Config{Job: "a/b"}, says: []string{`Job is "a/b"`, "slash"}},
		{name: "parent as job", cfg: Config{Job: ".."}, says: []string{`Job is ".."`, "dot"}},
		{name: "slash in host", cfg: Config{Host: "/etc"}, says: []string{`Host is "/etc"`, "slash"}},
		{name: "newline in host", cfg: Config{Host: "a\nb"}, says: []string{"Host", "control"}},
		{name: "long job", cfg: Config{Job: strings.Repeat("j", 64)}, says: []string{"Job", "at most 63 bytes"}},
		{
			name: "long boot id", cfg: Config{BootID: strings.Repeat("b", 40)},
			says: []string{"BootID", "at most 39 bytes"},
		},
		{name: "NUL in dir", cfg: Config{Dir: "a\x00b"}, says: []string{"Dir", "NUL"}},
		{name: "sizes", cfg: Config{Slots: -1, LifeRecords: 1 << 21, OpRecords: 1 << 25}, says: []string{
			"Slots is -1", "1 to 16384", "LifeRecords is 2097152", "OpRecords is 33554432",
		}},
		{
			name: "dir is a file", cfg: Config{}, says: []string{"dir can't be created", DirVariable},
			prepare: func(t *testing.T, dir string) {
				must(t, os.WriteFile(dir, nil, 0o600))
			},
		},
		{
			name: "dir for everybody", says: []string{"is writable by others (mode 0777)", "chmod 700", DirVariable},
			prepare: func(t *testing.T, dir string) {
				must(t, os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777))
			},
		},
		{
			name: "job for all to read", cfg: Config{Job: "j"}, says: []string{"dir/j is not private (mode 0755)"},
			prepare: func(t *testing.T, dir string) {
				must(t, os.Mkdir(dir, 0o700), os.Mkdir(dir+"/j", 0o755), os.Chmod(dir+"/j", 0o755))
			},
		},
		{
			name: "job is a link", cfg: Config{Job: "j"}, says: []string{"dir/j is not a directory"},
			prepare: func(t *testing.T, dir string) {
				must(t, os.Mkdir(dir, 0o700), os.Symlink(t.TempDir(), dir+"/j"))
			},
		},
		{
			name: "job is a file", cfg: Config{Job: "j"}, says: []string{"dir/j is not a directory"},
			prepare: func(t *testing.T, dir string) {
				must(t, os.Mkdir(dir, 0o700), os.WriteFile(dir+"/j", nil, 0o600))
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			if tt.cfg.Dir == "" {
				tt.cfg.Dir = dir
			}
			if tt.prepare != nil {
				tt.prepare(t, dir)
			}
			w, err := Create(tt.cfg)
			if err == nil {
				_ = w.Close()
				t.Fatal("it was created")
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("the error lacks %q: %v", s, err)
				}
			}
		})
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// A directory that another user owns could hold anything. The root directory is such a directory, except for root, who
// can make one.
func TestCreateInAnothersDirectory(t *testing.T) {
	dir := "/"
	if os.Geteuid() == 0 {
		dir = t.TempDir()
		must(t, os.Chown(dir, 12345, -1), os.Chmod(dir, 0o700))
	}
	_, err := Create(Config{Dir: dir})
	if err == nil || !strings.HasPrefix(err.Error(), "tape: "+dir+" belongs to user") ||
		!strings.HasSuffix(err.Error(), "; "+elsewhere) {
		t.Errorf("got %v", err)
	}
}

func TestCreateFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	w := newTape(t, Config{Dir: dir, Job: "job", Host: "host"})
	if got, want := w.Path(), filepath.Join(dir, "job", "host-"+pid()+".tape"); got != want {
		t.Errorf("the tape is %s, want %s", got, want)
	}
	for path, mode := range map[string]os.FileMode{
		w.Path(): 0o600, dir: 0o700 | os.ModeDir, dir + "/job": 0o700 | os.ModeDir,
	} {
		if st, err := os.Stat(path); err != nil || st.Mode() != mode {
			t.Errorf("%s has mode %v, want %v: %v", path, st.Mode(), mode, err)
		}
	}
	// A second one of the same process stands beside the first.
	second := newTape(t, Config{Dir: dir, Job: "job", Host: "host"})
	if got, want := second.Path(), filepath.Join(dir, "job", "host-"+pid()+".1.tape"); got != want {
		t.Errorf("the second tape is %s, want %s", got, want)
	}
	if entries, err := os.ReadDir(dir + "/job"); err != nil || len(entries) != 2 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
}

// A tape of an earlier process with our pid is moved aside and can still be read; a file that is no tape is moved
// aside, too.
func TestCreateFindsStaleFile(t *testing.T) {
	dir := t.TempDir()
	w := newTape(t, Config{Dir: dir, Job: "j", Host: "h"})
	w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "old"})
	b, err := os.ReadFile(w.Path())
	must(t, err)
	b[hdrStartTicks]++ // another process's
	foldAgain(b)
	must(t, os.Remove(w.Path()), os.WriteFile(w.Path(), b, 0o600))

	second := newTape(t, Config{Dir: dir, Job: "j", Host: "h"})
	if second.Path() != w.Path() {
		t.Errorf("the new tape is %s, want %s", second.Path(), w.Path())
	}
	files, err := filepath.Glob(filepath.Join(dir, "j", "*.tape"))
	must(t, err)
	names := make(map[string]process.Liveness)
	for _, path := range files {
		r := openTape(t, path)
		for _, s := range r.Slots() {
			names[s.Name] = r.Liveness()
		}
	}
	if len(files) != 2 || names["old"] != process.Dead {
		t.Errorf("%d tapes, of which %v have communicators", len(files), names)
	}

	must(t, os.Remove(second.Path()), os.WriteFile(second.Path(), []byte("garbage"), 0o600))
	third := newTape(t, Config{Dir: dir, Job: "j", Host: "h"})
	if third.Path() != w.Path() {
		t.Errorf("garbage is in the way of %s: %s", w.Path(), third.Path())
	}
	files, err = filepath.Glob(filepath.Join(dir, "j", "*.tape"))
	must(t, err)
	tapes := 0
	var malformed *FormatError
	for _, path := range files {
		if r, err := Open(path); err == nil {
			tapes++
			must(t, r.Close())
		} else if !errors.As(err, &malformed) {
			t.Error(err)
		}
	}
	if tapes != 2 || len(files) != 3 || malformed == nil {
		t.Errorf("%d tapes beside the garbage, in %v: %v", tapes, files, malformed)
	}
}

// By default, tapes are on tmpfs, in a folder of this user.
func TestDefaultDir(t *testing.T) {
	t.Setenv(DirVariable, "/somewhere")
	if got := DefaultDir(); got != "/somewhere" {
		t.Errorf("%s is obeyed as %s", DirVariable, got)
	}
	t.Setenv(DirVariable, "")
	if got := DefaultDir(); !filepath.IsAbs(got) || !strings.Contains(got, "carillon-") {
		t.Errorf("the default is %s", got)
	}
}

// BootID may be the user's own name for a host; liveness is checked with the kernel's boot id.
func TestLivenessWithOwnBootID(t *testing.T) {
	w := newTape(t, Config{BootID: "node-1"})
	r := openTape(t, w.Path())
	if r.Header().BootID != "node-1" || r.Liveness() != process.Alive {
		t.Errorf("boot id %q, %v", r.Header().BootID, r.Liveness())
	}
}
