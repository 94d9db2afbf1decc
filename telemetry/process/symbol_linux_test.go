package process

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// compiled makes a library with an exported and an unexported function, and returns the symbols in the file.
func compiled(t testing.TB, flags ...string) (path string, symbols map[string]elf.Symbol) {
	t.Helper()
	dir := t.TempDir()
	path, source := filepath.Join(dir, "job.so"), filepath.Join(dir, "job.c")
	text := "void far(void);\n__attribute__((noinline)) static int inner(int n) { far(); return n; }\n" +
		"int outer(int n) { return inner(n) + 1; }\n"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-O2", "-fPIC", "-shared", "-o", path, source}, flags...)
	if out, err := exec.CommandContext(t.Context(), "cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read from
	all, _ := f.Symbols()
	dynamic, _ := f.DynamicSymbols()
	symbols = make(map[string]elf.Symbol)
	for _, s := range append(all, dynamic...) {
		symbols[s.Name] = s
	}
	return path, symbols
}

func TestFunction(t *testing.T) {
	path, symbols := compiled(t)
	loaded := time.Now()
	for _, name := range []string{"inner", "outer"} {
		s := symbols[name]
		for _, c := range []struct {
			offset uint64
			is     bool
		}{{0, false}, {1, true}, {s.Size, true}, {s.Size + 1, false}} {
			got, offset := Self().Function(path, s.Value+c.offset, loaded)
			if is := got == name && offset == c.offset; is != c.is {
				t.Errorf("%d behind %s, of %d bytes: %q+%d", c.offset, name, s.Size, got, offset)
			}
		}
	}
	if name, _ := Self().Function(path, symbols["inner"].Value+1, loaded.Add(-time.Hour)); name != "" {
		t.Errorf("the file was written after it was loaded, and has %q", name)
	}
	other := Self()
	other.StartTicks++ // has died
	if name, _ := other.Function(path, symbols["inner"].Value+1, loaded); name != "inner" {
		t.Errorf("%q of a dead process's file", name)
	}
	other.PIDSpace++ // in a container
	if name, _ := other.Function(path, symbols["inner"].Value+1, loaded); name != "" {
		t.Errorf("%q of a file that is not the dead process's", name)
	}

	path, symbols = compiled(t, "-s")
	if name, _ := Self().Function(path, symbols["outer"].Value+1, time.Now()); name != "outer" {
		t.Errorf("%q of a stripped file", name)
	}
}

// Only regular files are opened, and no file that is reached by a link out of the process's root directory.
func TestFunctionOfOtherFiles(t *testing.T) {
	path, symbols := compiled(t)
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{pipe, link, dir, "/dev/zero", "job.so", path + "/..", ""} {
		if name, _ := Self().Function(other, symbols["inner"].Value+1, time.Now()); name != "" {
			t.Errorf("%s has %q", other, name)
		}
	}
}

// FuzzFunction reads malicious files.
func FuzzFunction(f *testing.F) {
	path, symbols := compiled(f)
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	address := symbols["inner"].Value + 1
	f.Add(whole, address)
	for n := 0; n < len(whole); n += 97 {
		f.Add(whole[:n], address)
		damaged := bytes.Clone(whole)
		copy(damaged[n:], bytes.Repeat([]byte{0xff}, 97))
		f.Add(damaged, address)
	}
	for n := 32; n < 64; n++ { // of the header: where the sections are
		damaged := bytes.Clone(whole)
		damaged[n] ^= 0x80
		f.Add(damaged, address)
	}
	f.Fuzz(func(t *testing.T, file []byte, address uint64) {
		if name, _ := function(bytes.NewReader(file), address); len(name) > maxName {
			t.Errorf("a name of %d bytes", len(name))
		}
	})
}
