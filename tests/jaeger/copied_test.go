package jaeger

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// TestCommandsOfTheExample copies every command that examples/hang prints to a shell, as a user would, and checks that
// its output shows what the text promises.
func TestCommandsOfTheExample(t *testing.T) {
	j := Start(t)
	env := append(append(j.Env("http/protobuf"), soon...), "CARILLON_TAPE_DIR="+t.TempDir())
	hang := e2e.Start(t, env, "carillon", "run", "-n", "4", "--", "hang", "-for", "1h", "-jaeger", "http://"+j.query)
	hang.Await(`rank 3 is in the all-reduce`)

	// Keys are the texts above the commands; output is what a command's output must match.
	shows := []struct{ above, output string }{
		{"watch which rank holds the job up", `CRITICAL verdict\.opened: rank 2 \([^)]*\) has not entered all_reduce`},
		{"what rank 0 is doing", `(?s)"call": "all_reduce".*"wait_rank": [1-3]`},
		{"its health", `\[-\]job_stalled failed: .*rank 2 \([^)]*\) has not entered`},
		{"its metrics", `(?m)^ccl_stall_age_seconds\{.*wait_rank="[1-3]".*\} [\d.]+$`},
		{"in Jaeger", `waiting for rank 2`},
		{"the same on Jaeger's page", `<html`}, // this Jaeger has no page, but it answers
		{"all ranks side by side", `(?s)all_reduce.*rank 2`},
	}
	for _, show := range shows {
		line := hang.Await(`^\[0\]   ` + regexp.QuoteMeta(show.above) + `[^\n]*:\n\[0\]     (.+)$`)[1]
		line = strings.Replace(line, "watch --for 20s", "watch --for 2s", 1) // nobody reads the output
		if strings.HasPrefix(line, "http") {
			line = "curl -s '" + line + "'"
		}
		want := regexp.MustCompile(show.output)
		j.poll(line, func(ctx context.Context) error {
			out, err := exec.CommandContext(ctx, "bash", "-c", line).CombinedOutput()
			if !want.Match(out) {
				return fmt.Errorf("it printed %q, %w; want %s", out, err, want)
			}
			return err
		})
	}

	kill := hang.Await(`^\[0\]   kill rank 2[^\n]*:\n\[0\]     (.+)$`)[1]
	if out, err := exec.CommandContext(t.Context(), "bash", "-c", kill).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", kill, err, out)
	}
	if code := hang.ExitCode(); code != 128+9 {
		t.Errorf("exit code %d, want %d", code, 128+9)
	}
	for _, rank := range []int{0, 1, 3} {
		if said := fmt.Sprintf("hang: rank %d", rank); !strings.Contains(hang.Output(), said) {
			t.Errorf("rank %d doesn't say that rank 2 died: no %q", rank, said)
		}
	}
	if n := strings.Count(hang.Output(), `the process of rank 2 of "world" has ended`); n < 3 {
		t.Errorf("%d ranks say that the process of rank 2 has ended, want all three", n)
	}
}
