package job

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSecretsOfTheDeadAreSwept: a secret file is removed once nobody has locked it, as after its launcher was killed.
func TestSecretsOfTheDeadAreSwept(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "secret")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, secretPrefix+"link")
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	dead, err := writePrivate(dir, "of the dead")
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Close(); err != nil { // as the kernel does for a process that is killed
		t.Fatal(err)
	}
	living, err := writePrivate(dir, "of the living")
	if err != nil {
		t.Fatal(err)
	}
	defer living.Close()
	sweepSecrets(dir)
	for path, want := range map[string]bool{dead.Name(): false, living.Name(): true, other: true, link: true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", path, err == nil, want)
		}
	}
	if text, err := os.ReadFile(living.Name()); err != nil || string(text) != "of the living" {
		t.Errorf("the living one's file has %q (%v)", text, err)
	}
}
