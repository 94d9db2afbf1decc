package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/tape/tapetest"
)

// deadTape writes the tape of a process that died in a barrier on another machine.
func deadTape(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	info := tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 0, Size: 2}
	sig := tape.Signature{Call: lifecycle.CallBarrier, Peer: -1}
	f := &tapetest.Forge{PID: 7, Host: "far", Job: "train", KernelBoot: [16]byte{1}, CreatedMono: 1, CreatedWall: 1e18}
	f.Comm(1, 1, info)
	f.Op(1, tape.OpRecord{Time: 2e9, Stage: tape.StageStart, Start: 2e9, Seq: 1, Signature: sig, Wait: -1})
	f.Slots = []tape.Slot{{
		CommInfo: info, Generation: 1, Root: 1, Launched: 1, Seq: 1, Op: sig, OpStart: 2e9, Wait: 1,
		WaitSince: 2e9,
	}}
	if err := f.WriteFile(dir + "/far-7.tape"); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPostmortem(t *testing.T) {
	dir := deadTape(t)
	stdout, stderr, code := carillon(t, "postmortem", dir)
	if code != 0 || !strings.Contains(stdout, "There is no tape of rank 1 of world") || !strings.Contains(stdout,
		"barrier 1 began") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	stdout, _, code = carillon(t, "postmortem", "--json", "--comm", "other", dir)
	var report postmortem.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, stdout)
	}
	if report.Job != "train" || len(report.Processes) != 1 || len(report.Events) != 0 {
		t.Errorf("%+v", report)
	}
}

// Without a named job, or with a folder of several jobs, the job is the one that wrote last, and the command says that
// there are others. The same holds for comms.
func TestJobIsTheLastOne(t *testing.T) {
	dir := t.TempDir()
	for i, job := range []string{"first", "last", "second"} {
		f := &tapetest.Forge{
			PID: 7 + i, Host: "far", Job: job, KernelBoot: [16]byte{1}, CreatedMono: 1,
			CreatedWall: 1e18 + int64(i%2)*1e9,
		}
		if err := f.WriteFile(fmt.Sprintf("%s/far-%d.tape", dir, i)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(tape.DirVariable, dir)
	for _, job := range [][]string{nil, {dir}} {
		stdout, stderr, code := carillon(t, append([]string{"postmortem"}, job...)...)
		if code != 0 || !strings.HasPrefix(stdout, "job last: ") || !strings.Contains(stdout,
			"the job that wrote last; there are tapes of 2 other jobs (--job chooses)") {
			t.Errorf("postmortem %s: exit code %d\n%s%s", job, code, stdout, stderr)
		}
		stdout, stderr, code = carillon(t, append([]string{"comms"}, job...)...)
		if code != 0 || !strings.HasPrefix(stdout, "Job last, from 1 tape\n") {
			t.Errorf("comms %s: exit code %d\n%s%s", job, code, stdout, stderr)
		}
	}
}

// TestJobsAreCompleted: the shell completes JOB. status and watch, which look at a running job, complete only running
// jobs; comms and postmortem, which read tapes, complete all jobs.
func TestJobsAreCompleted(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(tape.DirVariable, dir)
	for _, job := range []string{"ended", "running"} {
		w, err := tape.Create(tape.Config{Dir: dir, Job: job, Slots: 1, LifeRecords: 1, OpRecords: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close() //nolint:errcheck // a second time, or at the end
		if job == "ended" {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		call []string
		want string
	}{
		{[]string{"comms"}, "running\nended\n:0"},
		{[]string{"postmortem", "ended"}, "running\nended\n:0"},
		{[]string{"postmortem", "--job"}, "running\nended\n:4"},
		{[]string{"watch"}, "running\n:0"},
		{[]string{"status"}, "running\n:0"},
		{[]string{"agent", "--job"}, "running\n:4"},
		{[]string{"attach", "--job"}, ":4"},
		{[]string{"run", "--job"}, ":4"},
		{[]string{"status", "running"}, ":4"},
		{[]string{"comms", "ended"}, ":4"},
	} {
		stdout, _, code := carillon(t, append(append([]string{"__complete"}, c.call...), "")...)
		if code != 0 || strings.TrimSpace(stdout) != c.want {
			t.Errorf("%q completes to %q, want %q", c.call, stdout, c.want)
		}
	}
}

func TestPostmortemExport(t *testing.T) {
	answer := http.StatusOK
	requests := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.WriteHeader(answer)
	}))
	defer srv.Close()
	for _, name := range []string{
		"OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED",
	} {
		t.Setenv(name, "") // restored after the test
	}
	dir := deadTape(t)
	_, stderr, code := carillon(t, "postmortem", "--export", "--endpoint", srv.URL, dir)
	if code != 0 || requests == 0 || !strings.Contains(stderr, "sent 1 span of 1 process\n") {
		t.Errorf("exit code %d, %d requests: %s", code, requests, stderr)
	}
	answer = http.StatusBadRequest
	if _, stderr, code = carillon(t, "postmortem", "--export", "--endpoint", srv.URL, dir); code != notSentCode ||
		!strings.Contains(stderr, "1 span could not be sent: ") || !strings.Contains(stderr, "400") ||
		!strings.Contains(stderr, "; the tapes keep them: call it again") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("a collector that refuses: exit code %d: %s", code, stderr)
	}
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	if _, stderr, code = carillon(t, "postmortem", "--export", dir); code != usageCode || !strings.Contains(stderr,
		"OTEL_TRACES_EXPORTER is none") {
		t.Errorf("no exporter: exit code %d: %s", code, stderr)
	}
}
