package attach

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What libcarillon-nccl.so makes of a file system for its tape: one that is as large as there is room for, or none, and
// a line that says why. It is never in the way of its process.
func TestRoomForTape(t *testing.T) {
	writer, err := filepath.Glob("../../runtime/attach/tape*.c")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "player")
	args := []string{"-std=c11", "-D_GNU_SOURCE", "-o", program, "../../runtime/attach/testdata/player.c"}
	if out, err := exec.CommandContext(t.Context(), "cc", append(args, writer...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// The player's tape is smaller than others: but for its tallies, all of its parts are set.
	for name, c := range map[string]struct{ mount, says, tape string }{
		"room":       {"size=64m", "", "581632"},
		"less room":  {"size=4m", "the tape has 120 KiB instead of 568", "122880"},
		"no room":    {"size=128k", "has no room for a tape: No space left on device; free some space", ""},
		"no files":   {"size=64m,nr_inodes=3", "No space left on device; free some space", ""},
		"read-only":  {"ro", "can't be created: Read-only file system; set CARILLON_TAPE_DIR", ""},
		"of another": {"uid=12345", "belongs to user 12345, and this process runs as user 0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-ec", `
				mount -t tmpfs -o mode=700,`+c.mount+` none `+dir+`
				echo comm 1 0102030405060708090a0b0c0d0e0f10 00000000000000000000000000000000 w 0 1 1 nccl 0 |
					TAPETEST_DIR=`+dir+` `+program+`
				find `+dir+` -type f -printf '%s\n'`)
			var says strings.Builder
			cmd.Stderr = &says
			sizes, err := cmd.Output()
			if err != nil || strings.TrimSpace(string(sizes)) != c.tape || !strings.Contains(says.String(), c.says) ||
				strings.Count(says.String(), "\n") != min(len(c.says), 1) {
				t.Errorf("%v; its files have %q bytes, want %s; it says %q, want %q", err, sizes, c.tape, &says, c.says)
			}
		})
	}
}
