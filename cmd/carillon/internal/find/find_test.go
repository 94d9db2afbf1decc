package find

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// newTape makes a tape of this process.
func newTape(t *testing.T, dir, job string) *tape.Writer {
	t.Helper()
	w, err := tape.Create(tape.Config{Dir: dir, Job: job, Slots: 1, LifeRecords: 1, OpRecords: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(tape.DirVariable, dir)
	older := newTape(t, dir, "older")
	newer := newTape(t, dir, "newer")
	ended := newTape(t, dir, "ended")
	if err := ended.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := health.WriteAddress(older.Path(), "http://[::]:4711/"); err != nil {
		t.Fatal(err)
	}
	if _, err := health.WriteAddress(ended.Path(), "http://127.0.0.1:4712/"); err != nil { // as when it was killed
		t.Fatal(err)
	}
	for what, want := range map[string]string{
		"": "newer", "older": "older", dir: "newer", filepath.Dir(older.Path()): "older", filepath.Dir(newer.Path()) +
			"/": "newer",
	} {
		if job, err := Find(what); err != nil || job.Name != want || !job.Running() ||
			job.Processes[0].PID != os.Getpid() {
			t.Errorf("%q finds %+v, %v; want %s", what, job, err, want)
		}
	}
	for what, want := range map[string]string{
		"ended": "job ended has ended; carillon postmortem",
		"none\x1b": "there is no job none\\u001b in " + dir +
			", and no folder of that name here; the last jobs are ended, newer, older",
		"/no/such":    "there is no folder /no/such",
		"http://h:1/": "http://h:1/ is a URL, not a job or a folder; status and watch take it with --url",
		t.TempDir():   "no job with tapes in",
	} {
		_, err := Find(what)
		var missing *NotFoundError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want a NotFoundError with %q", what, err, want)
		}
	}
	if names := Names(dir, false); !slices.Equal(names, []string{"newer", "older"}) {
		t.Errorf("running are %v", names)
	}
	// A folder that happens to have a job's name doesn't hide the job.
	t.Chdir(t.TempDir())
	if err := os.Mkdir("older", 0o700); err != nil {
		t.Fatal(err)
	}
	if at, err := Folders("older"); err != nil || at[0] != filepath.Join(dir, "older") {
		t.Errorf("the folders of job older are %s, %v", at, err)
	}
	if at, err := Folders("./older"); err != nil || at[0] != "./older" {
		t.Errorf("the folders of ./older are %s, %v", at, err)
	}
	job, err := Find("older")
	if err != nil {
		t.Fatal(err)
	}
	if p := job.Processes[0]; p.URL != "http://[::]:4711" || !p.Own || Reachable(p.URL) != "http://127.0.0.1:4711" {
		t.Errorf("its process is %+v, reached at %s", p, Reachable(p.URL))
	}
	if job, err := Read(filepath.Join(dir, "ended")); err != nil || job.Running() || job.Processes[0].URL != "" {
		t.Errorf("of the job that has ended: %+v, %v; want no endpoint", job, err)
	}
	// Where other users can write, an address may be theirs, so the token isn't sent there.
	if err := os.Chmod(filepath.Dir(older.Path()), 0o777); err != nil {
		t.Fatal(err)
	}
	if job, err := Find("older"); err != nil || job.Processes[0].Own {
		t.Errorf("in a folder that all write to: %+v, %v; want an address that isn't trusted", job, err)
	}
}

// TestExisting: default folders that don't exist don't hide others.
func TestExisting(t *testing.T) {
	there, none := t.TempDir(), filepath.Join(t.TempDir(), "none")
	for _, tt := range []struct{ dirs, want []string }{
		{[]string{none, there}, []string{there}},
		{[]string{there, none}, []string{there}},
		{[]string{none, none + "2"}, []string{none}},
	} {
		if got := existing(tt.dirs); !slices.Equal(got, tt.want) {
			t.Errorf("of %q there are %q, want %q", tt.dirs, got, tt.want)
		}
	}
}
