package attach

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A call's line of Python is the innermost one of the program's own.
func TestPythonLine(t *testing.T) {
	program := filepath.Join(t.TempDir(), "python")
	cc := exec.Command("cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-rdynamic", "-o", program,
		"testdata/python.c", "python.c")
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cc, err, out)
	}
	says := func(t *testing.T, stack, want string, args ...string) {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Stdin = bytes.NewBufferString(stack)
		out, err := cmd.Output()
		if got := strings.TrimSuffix(string(out), "\n"); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	const (
		head    = "Stack (most recent call first):\n"
		own     = "  File \"/job/train.py\", line 12 in step\n"
		outer   = "  File \"/job/main.py\", line 3 in <module>\n"
		library = "  File \"/venv/lib/python3.12/site-packages/torch/distributed.py\", line 7 in destroy\n"
		destroy = "destroy (/venv/lib/python3.12/site-packages/torch/distributed.py:7)"
		frozen  = "  File \"<frozen runpy>\", line 88 in _run_code\n"
	)
	fs := strings.Repeat("f", 63)
	long := strings.Repeat("d/", 200) + "train.py"
	for name, c := range map[string]struct{ stack, want string }{
		"the innermost":        {head + own + outer, "step (/job/train.py:12)"},
		"behind a library":     {head + library + own + frozen, "step (/job/train.py:12)"},
		"libraries alone":      {head + library + frozen, destroy},
		"typed":                {head + "  File \"<stdin>\", line 1 in <module>\n", "<module> (<stdin>:1)"},
		"in a name":            {head + "  File \"/a \" in b/t.py\", line 2 in f\n", `f (/a " in b/t.py:2)`},
		"a long name":          {head + "  File \"" + long + "\", line 2 in f\n", "f (" + long[len(long)-255:] + ":2)"},
		"a long function":      {head + "  File \"t.py\", line 2 in " + fs + "f\n", fs + " (t.py:2)"},
		"deep":                 {head + strings.Repeat(library, 99) + own, "step (/job/train.py:12)"},
		"too deep":             {head + strings.Repeat(library, 999) + own, destroy},
		"no frames":            {head + "  <no Python frame>\n", "none"},
		"frames without lines": {head + "  File ???, line ??? in ???\n" + own, "step (/job/train.py:12)"},
		"nothing":              {"", "none"},
		"no text":              {"\x00\n\x00  File \"", "none"},
		"a line out of bounds": {"  File \"t.py\", line 99999999999 in f\n", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			says(t, c.stack, c.want)
		})
	}
	t.Run("being finalized", func(t *testing.T) { says(t, head+own, "none", "finalizing") })
}
