package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// ranksVariable makes the test binary a launcher of so many ranks, each of which is the program itself. The launcher
// must end all processes that it starts.
const ranksVariable = "HANG_TEST_RANKS"

func TestMain(m *testing.M) {
	ranks, err := strconv.Atoi(os.Getenv(ranksVariable))
	if err == nil && os.Getenv("RANK") == "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := launch(ctx, ranks); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err == nil {
		main()
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// program is this program with so many ranks and those arguments. It may take a minute.
func program(t *testing.T, ranks int, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	for _, kv := range os.Environ() {
		if !regexp.MustCompile(`^(OTEL|CARILLON|NCCL)_`).MatchString(kv) {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, ranksVariable+"="+strconv.Itoa(ranks), "OTEL_TRACES_EXPORTER=none",
		"CARILLON_TAPE_DIR="+t.TempDir())
	return cmd
}

func TestHangEnds(t *testing.T) {
	out, err := program(t, 3, "-for", "300ms", "-missing", "1").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"rank 1 of 3 will not make the call that the others are in",
		"carillon run -n 4 --sd-file /run/carillon/hang.json -- bin/hang",
		"s  rank 0 is in the all-reduce, which waits for all ranks\n",
		"s  rank 1 waits for its data loader, and has not made the call\n",
		"s  rank 2 is in the all-reduce, which waits for all ranks\n",
		"s  rank 1 is in the all-reduce, which waits for all ranks\n",
		"s  rank 2 has the sum\n",
		"rank 1 has made its call, and the all-reduce is complete.",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	waited := regexp.MustCompile(`(?m)^ *([\d.]+) s  rank 0 has the sum$`).FindSubmatch(out)
	if waited == nil || string(waited[1]) < "0.3" {
		t.Errorf("rank 0 had the sum at %q s, want 0.3 or later:\n%s", waited, out)
	}
}

func TestInterrupt(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := program(t, 4, "-for", "1h")
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stdout)
			for lines.Scan() && !strings.Contains(lines.Text(), "rank 3 is in the all-reduce") {
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(stdout) // reads until all ranks have ended
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v, want exit code 0", err)
			}
			if err != nil || strings.Contains(string(rest), "has the sum") {
				t.Errorf("it went on with %q, %v", rest, err)
			}
		})
	}
}

func TestBadFlags(t *testing.T) {
	for flags, want := range map[string]string{
		"-for 0s":     "hang: -for is 0s, allowed is more than 0\n",
		"-missing -1": "hang: -missing is -1, allowed is a rank, from 0\n",
		"-missing 4":  "hang: -missing is 4, and the world has 4 ranks\n",
		"now": fmt.Sprintf("hang: don't know what to do with %q; there are only flags (see -help)\n",
			[]string{"now"}),
	} {
		out, err := program(t, 4, strings.Fields(flags)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s\nwant %s", flags, err, out, want)
		}
	}
	const want = "hang: a single rank waits for nobody: start four with carillon run -n 4 -- bin/hang\n"
	if out, err := program(t, 1).CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
		t.Errorf("one rank: %v, %s\nwant %s", err, out, want)
	}
}

func TestExported(t *testing.T) {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, c := range []struct {
		want      bool
		variables map[string]string
	}{
		{false, nil},
		{true, map[string]string{endpoint: "http://localhost:4318"}},
		{true, map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}},
		{false, map[string]string{endpoint: "http://localhost:4318", "OTEL_TRACES_EXPORTER": "console"}},
		{false, map[string]string{endpoint: "http://localhost:4318", "OTEL_SDK_DISABLED": "true"}},
	} {
		t.Run("", func(t *testing.T) {
			for name, value := range c.variables {
				t.Setenv(name, value)
			}
			if got := exported(); got != c.want {
				t.Errorf("%v: %v, want %v", c.variables, got, c.want)
			}
		})
	}
}
