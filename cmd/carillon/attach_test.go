package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAttachSaysWhatIsWrong: errors are reported before the program is started.
func TestAttachSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	build := func(name, source string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		cc := exec.Command("gcc", "-shared", "-fPIC", "-o", path, "-x", "c", "-")
		cc.Stdin = strings.NewReader(source)
		if out, err := cc.CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v\n%s", err, out)
		}
		return path
	}
	build(auditName, "void la_symbind64(void) {}\n")
	good := build("good.so", "void ncclCommDestroy(void) {}\nvoid ncclProfiler_v1(void) {}\n")
	alone := filepath.Join(t.TempDir(), "alone.so") // without the library for the loader
	if err := os.Link(good, alone); err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(dir, "shared")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(dir, "text.so")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		library, tapes string
		args           []string
		code           int
		want           string
	}{
		{good, dir, []string{"no-such-program"}, codeNotFound, "no-such-program"},
		{
			good, dir,
			[]string{"--accept-nccl-bugs", "1762,99", "true"},
			usageCode, "attach: --accept-nccl-bugs is 99: the NCCL issues that keep an agent from querying ",
		},
		{good, dir, []string{"/etc"}, codeCannotRun, "/etc"},
		{good, dir, nil, usageCode, "the program is missing"},
		{good, dir, []string{"--how", "else", "true"}, usageCode, `--how is "else", allowed is auto, preload or audit`},
		{good, dir, []string{"--rank", "true"}, usageCode, "there is no flag --rank"},
		{good, dir, []string{"--job", "a/b", "true"}, usageCode, `a job can't be called "a/b"`},
		{good, shared, []string{"true"}, usageCode, "is writable by others"},
		{good, text, []string{"true"}, usageCode, "can't be created"},
		{"", dir, []string{"true"}, usageCode, "there is no "},
		{filepath.Join(dir, "none.so"), dir, []string{"true"}, usageCode, "no such file"},
		{text, dir, []string{"true"}, usageCode, "it is no library"},
		{
			build("other.so", "void ncclCommDestroy(void) {}\n"),
			dir,
			[]string{"true"},
			usageCode, "but not Carillon's: it has no ncclProfiler_v1",
		},
		{
			build("uses.so", "void ncclProfiler_v1(void);\nvoid ncclCommDestroy(void) { ncclProfiler_v1(); }\n"),
			dir,
			[]string{"true"},
			usageCode, "it has no ncclProfiler_v1",
		},
		{alone, dir, []string{"--how", "audit", "true"}, usageCode, auditName + " can't be used: "},
		{alone, dir, []string{"sh", "-c", "exit 7"}, 7, "looks up by dlsym are not seen"},
		{build("two words.so", ""), dir, []string{"true"}, usageCode, "a colon or a blank"},
	} {
		t.Setenv(libraryVariable, c.library)
		t.Setenv("CARILLON_TAPE_DIR", c.tapes)
		_, stderr, code := carillon(t, append([]string{"attach"}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%s, %s, %q: exit code %d, want %d; stderr %q, want %q in it", c.library, c.tapes, c.args, code,
				c.code, stderr, c.want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "sh-*")); err != nil || len(left) > 0 {
		t.Errorf("a program without communicators leaves %q, %v", left, err)
	}
}

// TestAttachEnvironment: libraries and plug-ins that the program already had still work.
func TestAttachEnvironment(t *testing.T) {
	for _, c := range []struct {
		had   []string
		audit string
		want  []string
	}{
		{
			[]string{"A=1", "CARILLON_JOB=old"},
			"",
			[]string{
				"A=1", "CARILLON_JOB=j", "CARILLON_TAPE_DIR=/t", "LD_PRELOAD=/l.so", "NCCL_PROFILER_PLUGIN=/l.so",
				"CARILLON_PROFILER_NEXT=libnccl-profiler.so",
			},
		},
		{
			[]string{"LD_PRELOAD=x.so", "NCCL_PROFILER_PLUGIN=y.so", "LD_AUDIT=a.so"},
			"/l-audit.so",
			[]string{
				"CARILLON_JOB=j", "CARILLON_TAPE_DIR=/t", "LD_PRELOAD=/l.so:x.so", "NCCL_PROFILER_PLUGIN=/l.so",
				"LD_AUDIT=/l-audit.so:a.so", "CARILLON_PROFILER_NEXT=y.so",
			},
		},
		{
			[]string{"CARILLON_PROFILER_NEXT=z.so", "NCCL_PROFILER_PLUGIN=y.so"},
			"",
			[]string{
				"CARILLON_JOB=j", "CARILLON_TAPE_DIR=/t", "LD_PRELOAD=/l.so", "NCCL_PROFILER_PLUGIN=/l.so",
				"CARILLON_PROFILER_NEXT=y.so,z.so",
			},
		},
		{ // attach in attach
			[]string{"CARILLON_PROFILER_NEXT=y.so,z.so", "NCCL_PROFILER_PLUGIN=/l.so"},
			"",
			[]string{
				"CARILLON_PROFILER_NEXT=y.so,z.so", "CARILLON_JOB=j", "CARILLON_TAPE_DIR=/t", "LD_PRELOAD=/l.so",
				"NCCL_PROFILER_PLUGIN=/l.so",
			},
		},
	} {
		child := exec.Cmd{Env: environment(c.had, "/l.so", c.audit, "/t", "j")}
		if got := child.Environ(); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.had, got, c.want)
		}
	}
}

// TestAttachPrintsEnvironment: the output is for a shell, without variables that a process finds out itself.
func TestAttachPrintsEnvironment(t *testing.T) {
	dir := t.TempDir()
	nccl, program := filepath.Join(dir, "libnccl.so.2"), filepath.Join(dir, "linked")
	for _, c := range []struct {
		path, source string
		how          []string
	}{
		{
			filepath.Join(dir, "lib.so"), "void ncclCommDestroy(void) {}\nvoid ncclProfiler_v1(void) {}\n",
			[]string{"-shared"},
		},
		{filepath.Join(dir, auditName), "void la_symbind64(void) {}\n", []string{"-shared"}},
		{nccl, "", []string{"-shared", "-Wl,-soname,libnccl.so.2"}},
		{program, "int main(void) { return 0; }\n", []string{"-pie", "-Wl,--no-as-needed", nccl}},
	} {
		cc := exec.Command("gcc", append([]string{"-fPIC", "-o", c.path, "-x", "c", "-", "-x", "none"}, c.how...)...)
		cc.Stdin = strings.NewReader(c.source)
		if out, err := cc.CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v\n%s", err, out)
		}
	}
	library := filepath.Join(dir, "lib.so")
	t.Setenv(libraryVariable, library)
	for _, v := range []string{
		"CARILLON_JOB", "CARILLON_TAPE_DIR", "LD_PRELOAD", "LD_AUDIT", "NCCL_PROFILER_PLUGIN", "CARILLON_PROFILER_NEXT",
	} {
		t.Setenv(v, "")
	}
	libraries := "export LD_PRELOAD=" + library + "\nexport NCCL_PROFILER_PLUGIN=" + library + "\n"
	audit := "export LD_AUDIT=" + filepath.Join(dir, auditName) + "\n"
	const next = "export CARILLON_PROFILER_NEXT=libnccl-profiler.so\n"
	for args, want := range map[string]string{
		"":               libraries + audit + next,
		"--how preload":  libraries + next,
		"--how auto -- ": libraries + audit + next,
		"-- " + program:  libraries + next,
		"--how preload --job it's --tape-dir /t": "export CARILLON_JOB='it'\\''s'\nexport CARILLON_TAPE_DIR=/t\n" +
			libraries + next,
	} {
		out, stderr, code := carillon(t, append([]string{"attach", "--print-env"}, strings.Fields(args)...)...)
		if code != 0 || out != want || stderr != "" {
			t.Errorf("%q: exit code %d; it prints %q, want %q; stderr %q", args, code, out, want, stderr)
		}
	}
	if _, stderr, code := carillon(t, "attach", "--print-env", "no-such-program"); code != codeNotFound {
		t.Errorf("a program that isn't there: exit code %d, %s", code, stderr)
	}
}
