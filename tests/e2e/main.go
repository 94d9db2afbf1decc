package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binVariable names a folder that contains Carillon's command and examples.
const binVariable = "E2E_BIN"

// Main puts Carillon's command and examples first in the PATH, and runs the tests of a package. It builds them, unless
// the folder in E2E_BIN contains them. It returns the exit code for TestMain.
func Main(m *testing.M) int {
	bin := os.Getenv(binVariable)
	if bin == "" {
		var err error
		if bin, err = os.MkdirTemp("", "carillon-e2e-"); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return 1
		}
		defer os.RemoveAll(bin)
		if err := build(bin); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return 1
		}
	}
	if err := os.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return m.Run()
}

// build builds the programs of the main module, whose tests folder this module is in, into dir.
func build(dir string) error {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	cmd := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "./cmd/...", "./examples/...")
	cmd.Dir = filepath.Dir(filepath.Dir(string(mod)))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s in %s: %w\n%s", cmd, cmd.Dir, err, out)
	}
	return nil
}
