package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Main builds Carillon's command and examples, and programs of the tests' own module if it is given any, puts them
// first in the PATH, and runs the tests of a package. It returns the exit code of TestMain.
func Main(m *testing.M, programs ...string) int {
	bin, err := os.MkdirTemp("", "carillon-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer os.RemoveAll(bin)
	if err := build(bin, programs); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	if err := os.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return m.Run()
}

// build builds the main module's programs into dir, and those of this one, which may be none.
func build(dir string, programs []string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	if err := goBuild(dir, root, "./cmd/...", "./examples/..."); err != nil || len(programs) == 0 {
		return err
	}
	return goBuild(dir, ".", programs...)
}

// goBuild builds the programs that a folder's go command finds.
func goBuild(dir, folder string, programs ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-o", dir + string(filepath.Separator)}, programs...)...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s in %s: %w\n%s", cmd, folder, err, out)
	}
	return nil
}

// moduleRoot returns the folder of the main module, which the tests' module stands in.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(filepath.Dir(string(out))), nil
}
