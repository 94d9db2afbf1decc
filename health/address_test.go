package health

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAddress(t *testing.T) {
	tape := filepath.Join(t.TempDir(), "node.example.org-12.1.tape")
	if _, err := ReadAddress(tape); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a process without an endpoint: %v, want os.ErrNotExist", err)
	}
	remove, err := WriteAddress(tape, "http://127.0.0.1:4711/")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ReadAddress(tape); got != "http://127.0.0.1:4711" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(filepath.Dir(tape))
	if err != nil || len(entries) != 0 {
		t.Errorf("%v is left, %v", entries, err)
	}
	if _, err := WriteAddress(filepath.Join(tape, "nowhere.tape"), "http://127.0.0.1:1"); err == nil {
		t.Error("it was written into a folder that isn't there")
	}
}

func TestBadAddress(t *testing.T) {
	tape := filepath.Join(t.TempDir(), "a-1.tape")
	path := filepath.Join(filepath.Dir(tape), "a-1"+addressSuffix)
	for _, text := range []string{
		"", "127.0.0.1:80", "file:///etc/passwd", "http://", "http://user:secret@host/", "http://a\nb", "ftp://h",
		"http://[::1", strings.Repeat("h", maxAddress+1),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadAddress(tape); err == nil {
			t.Errorf("%.20q is read as %q", text, got)
		}
	}
	if err := errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadAddress(tape); err == nil {
		t.Errorf("a link is read as %q", got)
	}
}
