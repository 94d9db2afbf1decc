package attach

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestWaysIn runs programs that destroy a communicator twice, which crashes them, and that call NCCL in different ways:
// as a library that they are linked with, from a library that is loaded into a scope of its own, and by dlsym. If its
// calls reach our library, the program survives, gets NCCL's own error, and a line has both call sites; if not, the
// program is told that they don't.
func TestWaysIn(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	nccl := fakenccl.Build(t, built, "2.28.9")
	env := []string{
		"LD_LIBRARY_PATH=" + nccl, "FAKENCCL_HEAP=dirty", "CARILLON_TAPE_DIR=" + t.TempDir(),
		"CARILLON_HEALTH_ADDR=off",
	}
	linked := fakenccl.Program(t, built, "double_destroy")
	shared, loader := filepath.Join(built, "double_destroy.so"), filepath.Join(built, "loader")
	compile := func(args ...string) {
		t.Helper()
		if text, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	compile("-o", loader, "testdata/loader.c")
	compile("-shared", "-fPIC", "-pthread", "-D_GNU_SOURCE", "-I../fakenccl/src", "-I../../runtime/attach",
		"-o", shared, "../fakenccl/programs/double_destroy.c", "-L"+nccl, "-l:libnccl.so.2", "-l:libcudart.so.12")
	const unseen = "NCCL is called past libcarillon-nccl.so: there are spans of its operations, but no guards; " +
		"carillon attach --how audit may help"
	for _, c := range []struct {
		name, how string
		program   []string
		seen      bool
	}{
		{"linked", "preload", []string{linked, "processes", "2"}, true},
		{"linked", "audit", []string{linked, "processes", "2"}, true},
		{"own scope", "preload", []string{loader, shared, "processes", "2"}, false},
		{"own scope", "auto", []string{loader, shared, "processes", "2"}, true},
		{"dlsym", "preload", []string{"python3", "testdata/double_destroy.py"}, false},
		{"dlsym", "auto", []string{"python3", "testdata/double_destroy.py"}, true},
	} {
		t.Run(c.name+" "+c.how, func(t *testing.T) {
			job := e2e.Start(t, env, "carillon", append([]string{"attach", "--how", c.how, "--"}, c.program...)...)
			code, printed := job.ExitCode(), job.Output()
			answered := regexp.MustCompile(`destroying again: (4|invalid argument)`).MatchString(printed)
			if answered != c.seen || (code == 0) != c.seen || strings.Contains(printed, unseen) == c.seen {
				t.Errorf("want that its calls are seen: %v; exit code %d, printed\n%s", c.seen, code, printed)
			}
			line := `level=WARN msg=ccl\.comm\.destroy .*destroyed before.* at=.* first=`
			if regexp.MustCompile(line).MatchString(printed) != c.seen {
				t.Errorf("want a line about the refused call: %v; printed\n%s", c.seen, printed)
			}
		})
	}
}
