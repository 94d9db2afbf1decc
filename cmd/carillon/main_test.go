package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/view"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// commandVariable makes the test's binary the command itself: carillon sim ends its process.
const commandVariable = "CARILLONTEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
	}
	// The tests don't sweep away the user's own jobs, and the user's next command doesn't take one of the tests' jobs
	// for the last job.
	tapes, err := os.MkdirTemp("", "carillon-tapes-")
	if err == nil {
		err = os.Setenv(tape.DirVariable, tapes)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(tapes)
		os.Exit(code)
	}))
}

// carillon runs the command, and returns its output and its exit code.
func carillon(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var files [2]*os.File
	for i := range files {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	code = execute(args, files[0], files[1])
	read := func(f *os.File) string {
		text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	return read(files[0]), read(files[1]), code
}

func TestVersion(t *testing.T) {
	stdout, _, code := carillon(t, "version", "--json")
	var info buildInfo
	if err := json.Unmarshal([]byte(stdout), &info); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, stdout)
	}
	if info.Go != runtime.Version() || info.Version == "" || info.Commit == "" {
		t.Errorf("%+v", info)
	}
	if line, _, _ := carillon(t, "version"); line != info.String()+"\n" {
		t.Errorf("%q, want %q", line, info)
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"run", "-n", "2", "--", "true"}, 0, "ranks 0 and 1 up in "},
		{[]string{"run", "-q", "--", "sh", "-c", "exit 42"}, 42, "exited with 42 after "},
		{[]string{"run", "-q", "sh", "-c", "kill -SEGV $$"}, 128 + 11, "was killed by SIGSEGV"},
		{
			[]string{"run", "--max-restarts", "2", "sh", "-c", "exit $((40 + TORCHELASTIC_RESTART_COUNT))"},
			42,
			"restarting all ranks: restart 2 of 2",
		},
		{
			[]string{"run", "--max-restarts", "2", "sh", "-c", "exit $((1 - TORCHELASTIC_RESTART_COUNT))"},
			0,
			"restart 1 of 2",
		},
		{
			[]string{"run", "--max-restarts", "1", "--stdin", "true"},
			usageCode,
			`--max-restarts is "1", allowed is 0 with --stdin`,
		},
		{[]string{"run", "no-such-program"}, codeNotFound, "no-such-program"},
		{[]string{"run", "/etc"}, codeCannotRun, "/etc"},
		{[]string{"run"}, usageCode, "after --"},
		{[]string{"run", "-n", "-1", "true"}, usageCode, `-n is "-1", allowed is 1 to 4096`},
		{
			[]string{"run", "-n", "many", "true"},
			usageCode,
			`run: --ranks is "many", allowed is a whole number (see carillon run`,
		},
		{
			[]string{"run", "--nodes", "2", "true"},
			usageCode,
			"there is no flag --nodes; did you mean --nnodes (how many machines",
		},
		{[]string{"run", "--grace"}, usageCode, "--grace needs a value: the time between SIGTERM and SIGKILL"},
		{[]string{"comms", "a", "b"}, usageCode, `unexpected argument "b": it takes at most one job`},
		{[]string{"comms", "no-such-job"}, usageCode, "there is no job no-such-job in "},
		{[]string{"postmortem", "no-such-job"}, usageCode, "there is no job no-such-job in "},
		{[]string{"status", "no-such-job"}, view.CodeUnknown, "there is no job no-such-job in "},
		{[]string{"version", "now"}, usageCode, `unexpected argument "now": it takes no arguments`},
		{[]string{"stats"}, usageCode, `there is no command "stats"; did you mean status?`},
		{[]string{"run", "--tee", "/dev/null/logs", "true"}, usageCode, `--tee is "/dev/null/logs"`},
		{[]string{"run", "--simulate-nodes", "0", "true"}, usageCode, `--simulate-nodes is "0", allowed is 1 or more`},
		{[]string{"bench", "--processes", "-1"}, usageCode, "--processes is -1, allowed is 2 to 1024"},
		{[]string{"bench", "--processes", "0", "--in-process", "0"}, usageCode, "nothing to measure"},
		{[]string{"bench", "--budget", "0s"}, usageCode, "--budget is 0s"},
		{[]string{"bench", "--gpu", "9"}, usageCode, "--gpu is 9, allowed is 2 to 8 ranks"},
		{
			[]string{"bench", "--gpu", "2", "--collective", "scatter"},
			usageCode,
			`--collective is "scatter", allowed are all_reduce, all_gather, reduce_scatter`,
		},
		{[]string{"bench", "--gpu", "2", "--beside", "/no/such/file"}, usageCode, "--beside: open /no/such/file"},
		{[]string{"postmortem", "/no/such/folder"}, usageCode, "/no/such/folder"},
		{[]string{"postmortem", "--last", "-1", "."}, usageCode, "--last is -1"},
		{[]string{"postmortem", "--color", "pink", "."}, usageCode, `"pink", allowed is auto, always or never`},
		{[]string{"postmortem", "--color", "auto", "/no/such"}, usageCode, "there is no folder /no/such"},
		{[]string{"watch", "--severity", "loud"}, view.CodeUnknown, `"loud", allowed is info, warning or critical`},
		{[]string{"postmortem", "--window", "0s", "."}, usageCode, "--window is 0s"},
		{[]string{"postmortem", "--all", "."}, usageCode, "need --export"},
		{[]string{"postmortem", "--rank", "-1", "."}, usageCode, "--rank is -1"},
		{
			[]string{"postmortem", "--export", "--endpoint", "nowhere:1", "."},
			usageCode,
			`--endpoint is "nowhere:1", want a URL`,
		},
		{[]string{"postmortem", "--export", "--endpoint", "", "."}, usageCode, `--endpoint is "", want a URL`},
		{[]string{"sim", "--ranks", "63"}, usageCode, "63 ranks: allowed are multiples of 8, from 64"},
		{[]string{"sim", "--faults", "kill,flood"}, usageCode, `--faults: "flood" is no fault, allowed are kill stop`},
		{[]string{"sim", "--duration", "1s"}, usageCode, "a duration of 1s"},
		{
			[]string{"watch", "--url", "127.0.0.1:1", "--for", "50ms"},
			view.CodeUnknown,
			"no answer within 50ms: ",
		},
		{[]string{"fly"}, usageCode, `there is no command "fly" (see carillon --help)`},
	} {
		_, stderr, code := carillon(t, c.args...)
		if code != c.code || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%q: exit code %d, want %d; stderr %q, want %q in it", c.args, code, c.code, stderr, c.stderr)
		}
	}
}

func TestRunLeavesTheProgramItsFlags(t *testing.T) {
	for _, args := range [][]string{
		{"run", "-q", "--", "echo", "-n", "2", "--help"},
		{"run", "-q", "echo", "-n", "2", "--help"},
	} {
		if stdout, _, _ := carillon(t, args...); stdout != "[0] 2 --help\n" {
			t.Errorf("%q printed %q", args, stdout)
		}
	}
}

func TestEveryCommandHelps(t *testing.T) {
	root := newRoot(os.Stdout, os.Stderr)
	for _, cmd := range root.Commands() {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		if cmd.Short == "" || cmd.Long == "" && len(cmd.Commands()) == 0 && cmd.Flags().HasFlags() &&
			cmd.Name() != "version" || cmd.Example == "" {
			t.Errorf("%s: its help lacks a summary, a description or an example", cmd.Name())
		}
	}
}
