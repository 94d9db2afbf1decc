package attach

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestUnseen runs programs that Carillon sees only in part, or not at all: they run as without it, and Carillon says
// so.
func TestUnseen(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	const version = "2.28.9"
	nccl, program := fakenccl.Build(t, built, version), fakenccl.Program(t, built, "traffic")
	newer := fakenccl.Build(t, built, "2.99.0")
	compile := func(args ...string) {
		t.Helper()
		args = append(args, "-std=c11", "-D_GNU_SOURCE", "-pthread", "-I../fakenccl/src", "-I../../runtime/attach")
		if text, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	objects, err := filepath.Glob(filepath.Join(built, "*.o"))
	if err != nil {
		t.Fatal(err)
	}
	cuda := []string{filepath.Join(nccl, "libcudart.so.12"), filepath.Join(nccl, "libcuda.so.1")}
	static, old, lasting := filepath.Join(built, "static"), t.TempDir(), filepath.Join(built, "lasting")
	compile(append(append(objects, "-DFAKENCCL_VERSION=22809", "../fakenccl/programs/traffic.c",
		"../fakenccl/src/version.c", "-o", static), cuda...)...)
	compile(append(append(objects, "-DFAKENCCL_VERSION=21701", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2",
		"-Wl,-Bsymbolic", "../fakenccl/src/version.c", "-Wl,--version-script="+filepath.Join(nccl, "names.map"),
		"-o", filepath.Join(old, "libnccl.so.2")), cuda...)...)
	compile("../fakenccl/programs/traffic.c", "-o", lasting, "-L"+nccl, "-l:libnccl.so.2", "-l:libcudart.so.12",
		"-Wl,-rpath,"+nccl)
	const nothing = "no communicator was seen"
	// A separate file system, as that of the test may ignore the bit.
	setgid := `mount -t tmpfs none /mnt; cp "$0" /mnt/program; chgrp 65534 /mnt/program; chmod g+s /mnt/program
		exec carillon attach -- /mnt/program processes 2`
	for name, c := range map[string]struct {
		libraries string
		command   []string
		code      int
		says      string
		lines     int // from Carillon
		tapes     int
	}{
		"all": {nccl, []string{program}, 0, "", 0, 2},
		"no environment": {
			nccl, []string{"env", "-i", "LD_LIBRARY_PATH=" + nccl, program}, 0, nothing, 1, 0,
		},
		"setgid":          {nccl, nil, 0, nothing, 1, 0},
		"static":          {nccl, []string{static}, 0, "there are spans of its operations, but no guards", 1, 2},
		"newer":           {newer, []string{program}, 0, "NCCL 2.99.0 is newer than 2.31.", 2, 2},
		"older":           {old + ":" + nccl, []string{program}, 0, "NCCL 2.17.1 is older than 2.18", 3, 0},
		"no NCCL":         {"", []string{"sh", "-c", "exit 3"}, 3, nothing, 1, 0},
		"no NCCL to link": {"/nowhere", []string{program}, 127, nothing, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tapes := t.TempDir()
			env := []string{
				"LD_LIBRARY_PATH=" + c.libraries, "CARILLON_TAPE_DIR=" + tapes, "CARILLON_HEALTH_ADDR=off",
				"CARILLON_LOG=off",
			}
			command := append([]string{"carillon", "attach", "--"}, append(c.command, "processes", "2")...)
			if c.command == nil {
				command = []string{"unshare", "--mount", "sh", "-ec", setgid, lasting}
			}
			job := e2e.Start(t, env, command[0], command[1:]...)
			code, printed := job.ExitCode(), job.Output()
			if code != c.code || !strings.Contains(printed, c.says) ||
				strings.Count(printed, "carillon: ") != c.lines {
				t.Errorf("exit code %d, want %d; want %d lines, and in them %q; printed\n%s", code, c.code, c.lines,
					c.says, printed)
			}
			paths, err := filepath.Glob(filepath.Join(tapes, "*", "*.tape"))
			if err != nil || len(paths) != c.tapes {
				t.Errorf("tapes %q, %v; want %d", paths, err, c.tapes)
			}
		})
	}
}
