package fakenccl

import (
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Versions are versions of NCCL that differ in what the fake imitates: functions, profiler interface, or faults.
var Versions = []string{
	"2.18.1", "2.19.1", "2.22.3", "2.23.4", "2.24.3", "2.26.2", "2.27.3", "2.28.3", "2.28.9",
	"2.29.2", "2.30.4", "2.31.2",
}

// Build builds the fake NCCL of a version in dir, and returns the folder of its libnccl.so.2 and libcudart.so.12, for
// LD_LIBRARY_PATH. Files that versions share are built only once per dir. Needs make, awk and a C compiler.
func Build(tb testing.TB, dir, version string) string {
	tb.Helper()
	run(tb, dir, version)
	return filepath.Join(dir, version)
}

// BuildOn is Build for a program that loads a driver, a libcuda.so.1, first: its streams and memory are the driver's.
// It returns the path of libnccl.so.2.
func BuildOn(tb testing.TB, dir, version, driver string) string {
	tb.Helper()
	path := filepath.Join(dir, version+"-on-driver", "libnccl.so.2")
	run(tb, dir, version, "DRIVER="+driver, path)
	return path
}

// Program builds programs/name.c in dir, and returns its path. The program runs on every version that has its
// functions.
func Program(tb testing.TB, dir, name string) string {
	tb.Helper()
	path := filepath.Join(dir, "programs", name)
	run(tb, dir, Versions[len(Versions)-1], path)
	return path
}

// building is held by the test that runs make.
var building sync.Mutex

func run(tb testing.TB, dir, version string, targets ...string) {
	tb.Helper()
	building.Lock()
	defer building.Unlock()
	mod, err := exec.CommandContext(tb.Context(), "go", "env", "GOMOD").Output()
	if err != nil {
		tb.Fatalf("go env GOMOD: %v", err)
	}
	source := filepath.Join(filepath.Dir(strings.TrimSpace(string(mod))), "fakenccl")
	args := append([]string{"-s", "-C", source, "OUT=" + dir, "VERSION=" + version}, targets...)
	if out, err := exec.CommandContext(tb.Context(), "make", args...).CombinedOutput(); err != nil {
		tb.Fatalf("make %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
