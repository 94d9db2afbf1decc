package node

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFolderThatCantBeRead: it is logged once that its tapes are not followed, but not for a folder that doesn't exist
// yet.
func TestFolderThatCantBeRead(t *testing.T) {
	var said bytes.Buffer
	s := &settings{}
	s.Log = slog.New(slog.NewTextHandler(&said, nil))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := &Agent{settings: s, dirs: []string{file, file + "-later"}, seen: map[string]bool{}}
	a.Scan()
	a.Scan()
	if strings.Count(said.String(), "\n") != 1 || !strings.Contains(said.String(), file) {
		t.Errorf("it says %q, want one line about %s", &said, file)
	}
}
