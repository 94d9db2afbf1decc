package tape

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		size int64
		want geometry
	}{
		{0, geometry{512, 1024, 8192, 65536, 64, 0}},
		{6758400, geometry{512, 1024, 8192, 65536, 64, 0}},
		{6758399, geometry{256, 512, 4096, 32768, 32, 0}},
		{MinSize, geometry{8, 16, 128, 1024, 1, 0}},
		{1 << 40, geometry{8192, 16384, 131072, 1048576, 128, 0}},
	} {
		cfg, err := Config{Size: c.size, Dir: t.TempDir()}.complete()
		if got := cfg.geometry(); err != nil || got != c.want {
			t.Errorf("of %d bytes: %+v, %v; want %+v", c.size, got, err, c.want)
		}
	}
	if cfg, err := (Config{Size: MinSize, OpRecords: 2048}).complete(); err != nil || cfg.OpRecords != 2048 {
		t.Errorf("what is set is changed to %d, %v", cfg.OpRecords, err)
	}
	if err := (Config{Size: MinSize - 1}).Validate(); err == nil {
		t.Error("a tape may have no room at all")
	}
}

// If a directory can't be used, the next one is; if none can, one sentence says so.
func TestMakeElsewhere(t *testing.T) {
	serves := t.TempDir()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil { //nolint:gosec // it is refused
		t.Fatal(err)
	}
	for dir, problem := range map[string]string{
		filepath.Join(file, "below"): "not a directory", file: "not a directory", open: "is writable by others",
	} {
		w, less, elsewhere, err := Make(Config{}, []string{dir, serves}, -1)
		if err != nil || !elsewhere || !strings.Contains(less, dir) || !strings.Contains(less, problem) ||
			strings.Contains(less, "CARILLON") {
			t.Errorf("%s: elsewhere %v, %q, %v", dir, elsewhere, less, err)
			continue
		}
		if err := w.Close(); err != nil || filepath.Dir(filepath.Dir(w.Path())) != serves {
			t.Errorf("the tape is %s, %v", w.Path(), err)
		}
		if _, _, _, err := Make(Config{}, []string{dir}, -1); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s alone: %v", dir, err)
		}
	}
}

// The oldest jobs are removed first, and no more than needed.
func TestSweepUntilThereIsRoom(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i, job := range []string{"oldest", "older", "old", "alive"} {
		w := newTape(t, Config{Dir: dir, Job: job, Size: MinSize})
		paths = append(paths, filepath.Dir(w.Path()))
		at := time.Now().Add(time.Duration(i-10) * time.Hour)
		if job != "alive" {
			_ = w.Close() // it can't fail
		}
		if err := os.Chtimes(w.Path(), at, at); err != nil {
			t.Fatal(err)
		}
	}
	left := 2
	removed, err := sweepJobs(dir, 0, func() bool { left--; return left < 0 })
	if err != nil || len(removed) != 2 || removed[0] != paths[0] || removed[1] != paths[1] {
		t.Errorf("removed %v, %v; want %v", removed, err, paths[:2])
	}
	if removed, err = SweepJobs(dir, 0); err != nil || len(removed) != 1 || removed[0] != paths[2] {
		t.Errorf("removed %v, %v; want %v", removed, err, paths[2])
	}
}
