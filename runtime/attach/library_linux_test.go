package attach_test

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// compilers build the library: the first must be there, the others are tried where they are installed.
var compilers = []struct {
	command string
	machine elf.Machine
	must    bool
}{
	{"gcc", 0, true}, // for this machine
	{"clang", 0, false},
	{"aarch64-linux-gnu-gcc", elf.EM_AARCH64, false},
}

// intended are the symbols that the library may show: those that it interposes, and the profiler plug-in.
var intended = regexp.MustCompile(`^(p?nccl[A-Z]\w*|ncclProfiler_v\d+)$`)

// The library builds with every compiler, needs libc alone, and shows nothing but what it is for.
func TestLibrary(t *testing.T) {
	for _, c := range compilers {
		if _, err := exec.LookPath(c.command); err != nil {
			if c.must {
				t.Fatalf("the tests need %s: %v", c.command, err)
			}
			continue
		}
		t.Run(c.command, func(t *testing.T) {
			dir := t.TempDir()
			library := filepath.Join(dir, "libcarillon-nccl.so")
			build := exec.CommandContext(t.Context(), "make", "-C", "../..", "CC="+c.command, "BIN="+dir, library)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			f, err := elf.Open(library)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			if c.machine != 0 && f.Machine != c.machine {
				t.Errorf("it is for %v, want %v", f.Machine, c.machine)
			}
			needed, err := f.ImportedLibraries()
			if err != nil || !slices.Equal(needed, []string{"libc.so.6"}) {
				t.Errorf("it needs %q, %v; want libc alone", needed, err)
			}
			flags, err := f.DynValue(elf.DT_FLAGS_1)
			if err != nil || len(flags) != 1 || elf.DynFlag1(flags[0])&elf.DF_1_NODELETE == 0 {
				t.Errorf("it may be unloaded: %x, %v", flags, err)
			}
			symbols, err := f.DynamicSymbols()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range symbols {
				if s.Section != elf.SHN_UNDEF && !intended.MatchString(s.Name) {
					t.Errorf("it shows %s", s.Name)
				}
			}
		})
	}
}
