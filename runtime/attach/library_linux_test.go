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

// libraries are what each needs beside itself, and what symbols it may show: the functions that it interposes and those
// of the profiler plug-in, or those that the loader calls.
var libraries = []struct {
	name   string
	needs  []string
	stays  bool
	symbol *regexp.Regexp
}{
	{"libcarillon-nccl.so", []string{"libc.so.6"}, true, regexp.MustCompile(`^(p?nccl[A-Z]\w*|ncclProfiler_v\d+)$`)},
	{"libcarillon-audit.so", nil, false, regexp.MustCompile(`^la_(version|objopen|objclose|symbind64)$`)},
}

// The libraries build with every compiler, need libc at most, and show nothing but what they are for.
func TestLibrary(t *testing.T) {
	for _, c := range compilers {
		if _, err := exec.LookPath(c.command); err != nil {
			if c.must {
				t.Fatalf("the tests need %s: %v", c.command, err)
			}
			continue
		}
		for _, l := range libraries {
			t.Run(c.command+" "+l.name, func(t *testing.T) {
				dir := t.TempDir()
				library := filepath.Join(dir, l.name)
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
				if err != nil || !slices.Equal(needed, l.needs) {
					t.Errorf("it needs %q, %v; want %q", needed, err, l.needs)
				}
				flags, err := f.DynValue(elf.DT_FLAGS_1)
				stays := len(flags) == 1 && elf.DynFlag1(flags[0])&elf.DF_1_NODELETE != 0
				if err != nil || stays != l.stays {
					t.Errorf("it stays in the process: %v, want %v; %v", stays, l.stays, err)
				}
				symbols, err := f.DynamicSymbols()
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range symbols {
					if s.Section != elf.SHN_UNDEF && !l.symbol.MatchString(s.Name) {
						t.Errorf("it shows %s", s.Name)
					}
				}
			})
		}
	}
}
