package watch

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestOtherUsersLearnNothing: another user of the host gets only a yes or no from two probes, while this user and root
// get all, as before. The test needs root to become another user.
func TestOtherUsersLearnNothing(t *testing.T) {
	_, tapes, _ := start(t)
	url := endpoints(t, tapes)[0]
	const stranger = 54321
	for _, tc := range []struct{ path, mine, stranger string }{
		{"/livez", "ok", "ok"},
		{"/livez?verbose", "[+]process ok", "ok"},
		{"/readyz", "ok", "ok"},
		{"/healthz?verbose", "[+]process ok", "user 54321"},
		{"/readyz/tape", "ok", "user 54321"},
		{"/", "<title>", "user 54321"},
		{"/metrics", "ccl_", "user 54321"},
		{"/api/v1/ras", `"schema": 1`, "user 54321"},
		{"/api/v1/traces", "ccl.comm.init", "user 54321"},
		{"/nowhere", "404", "user 54321"},
	} {
		if got := curl(t, 0, url+tc.path); !strings.Contains(got, tc.mine) {
			t.Errorf("%s: the job's user gets %.300q, want %q", tc.path, got, tc.mine)
		}
		got := curl(t, stranger, url+tc.path)
		if !strings.Contains(got, tc.stranger) || strings.Contains(got, "held-up") ||
			tc.stranger == "ok" && strings.TrimPrefix(got, "not ") != "ok" { // a job that is held up isn't ready
			t.Errorf("%s: another user gets %.300q, want %q", tc.path, got, tc.stranger)
		}
	}
	if got := curl(t, stranger, url+"/api/v1/events"); !strings.Contains(got, "user 54321") {
		t.Errorf("another user gets events: %.300q", got)
	}
}

// curl returns the answer that a user gets.
func curl(t *testing.T, user uint32, url string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "curl", "-s", "--noproxy", "*", url)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	return string(text)
}
