package attach_test

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// compilers build the library: the first must be installed, the others are used if they are. A machine of 0 is this
// machine.
var compilers = []struct {
	name, command string
	needs         []string
	machine       elf.Machine
}{
	{"gcc", "gcc", nil, 0},
	{"clang", "clang", []string{"clang"}, 0},
	{"gcc for arm64", "aarch64-linux-gnu-gcc", []string{"aarch64-linux-gnu-gcc"}, elf.EM_AARCH64},
	{
		"clang for arm64", "clang --target=aarch64-linux-gnu",
		[]string{"clang", "aarch64-linux-gnu-gcc"},
		elf.EM_AARCH64,
	},
}

// libraries have what each library may need, and the symbols that it may export: the functions that it interposes and
// those of the profiler plug-in, or those that the loader calls.
var libraries = []struct {
	name   string
	links  []string
	stays  bool
	symbol *regexp.Regexp
}{
	{"libcarillon-nccl.so", []string{"libc.so.6"}, true, regexp.MustCompile(`^(p?nccl[A-Z]\w*|ncclProfiler_v\d+)$`)},
	{"libcarillon-audit.so", nil, false, regexp.MustCompile(`^la_(version|objopen|objclose|symbind64)$`)},
}

// The libraries build with every compiler, need at most libc, and export only the symbols that they need to.
func TestLibrary(t *testing.T) {
	for _, c := range compilers {
		missing := func(command string) bool {
			_, err := exec.LookPath(command)
			return err != nil
		}
		if slices.ContainsFunc(c.needs, missing) {
			continue
		}
		for _, l := range libraries {
			t.Run(c.name+" "+l.name, func(t *testing.T) {
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
				if err != nil || !slices.Equal(needed, l.links) {
					t.Errorf("it needs %q, %v; want %q", needed, err, l.links)
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
					local := elf.ST_BIND(s.Info) == elf.STB_LOCAL
					if s.Section != elf.SHN_UNDEF && !local && !l.symbol.MatchString(s.Name) {
						t.Errorf("it shows %s", s.Name)
					}
				}
			})
		}
	}
}
