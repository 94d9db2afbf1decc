package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAgentSaysWhatIsWrong: errors name the flags.
func TestAgentSaysWhatIsWrong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--accept-nccl-bugs", "1762,99"}, "agent: --accept-nccl-bugs is 99: the NCCL issues that keep "},
		{[]string{"--join", "node0,no/de"}, `agent: --join is "no/de": want host or host:port`},
		{[]string{"--tape-dir", file}, "agent: tapes can't be followed: open " + file + ": not a directory"},
	} {
		_, stderr, code := carillon(t, append([]string{"agent"}, c.args...)...)
		if code != usageCode || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit code %d, stderr %q; want %d and %q", c.args, code, stderr, usageCode, c.want)
		}
	}
}
