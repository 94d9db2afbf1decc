package prometheus

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(roleVariable); name != "" {
		os.Exit(play(name))
	}
	os.Exit(e2e.Main(m))
}

// dashboards is the folder that is tested.
const dashboards = "../../dashboards"

// glob lists files of the dashboards folder; there must be at least one.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dashboards, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %s, %v", pattern, dashboards, err)
	}
	return files
}

// tool finds a program, or says how to install it.
func tool(t *testing.T, name, debianPackage string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v; install it: apt-get install -y --no-install-recommends %s", err, debianPackage)
	}
	return path
}
