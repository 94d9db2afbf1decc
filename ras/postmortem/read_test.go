package postmortem_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/tape/tapetest"
)

// TestLiving looks at a process that is alive: a call that began a moment ago is no finding, a call that hangs is.
func TestLiving(t *testing.T) {
	dir := t.TempDir()
	w, err := tape.Create(tape.Config{Dir: dir, Job: "living"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	c := w.Comm(tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 0, Size: 2})
	c.State(lifecycle.StateReady)
	c.Start(1, tape.Signature{Call: lifecycle.CallBarrier, Peer: -1}, 0)
	c.Wait(1)
	report, err := postmortem.Read([]string{dir}, postmortem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Findings) != 0 || len(report.Processes) != 1 || report.Processes[0].State != postmortem.StateAlive {
		t.Errorf("%+v", report)
	}
	var out strings.Builder
	if err := report.Write(&out, postmortem.TextOptions{}); err != nil ||
		!strings.Contains(out.String(), "nothing went wrong so far: 1 of 1 process runs.") {
		t.Errorf("%v: %s", err, out.String())
	}
	doing := report.Processes[0].Doing[0]
	if doing.Call != "barrier" || doing.Seq != 1 || doing.Wait != 1 || doing.For <= 0 || doing.For > time.Minute {
		t.Errorf("it is in %+v", doing)
	}
}

// TestOldestWithoutTable reads a tape whose table tells nothing: a rank is in the call that began first, though that
// was written last, when it began to wait.
func TestOldestWithoutTable(t *testing.T) {
	dir := t.TempDir()
	f := &tapetest.Forge{PID: 1 << 30, Host: "h", Job: "j", CreatedMono: 1, CreatedWall: 1}
	f.Comm(2, 1, tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 0, Size: 2})
	sig := tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1}
	for _, r := range []tape.OpRecord{
		// Called within a span, and so told at once.
		{Time: 20, Start: 20, Stage: tape.StageStart, Seq: 2, Wait: -1, Signature: sig},
		{Time: 10, Start: 10, Stage: tape.StageStart, Seq: 1, Wait: -1, Signature: sig},
		{Time: 30, Start: 10, Stage: tape.StageWait, Seq: 1, Wait: 1, Signature: sig},
	} {
		f.Op(1, r)
	}
	if err := f.WriteFile(filepath.Join(dir, "a.tape")); err != nil {
		t.Fatal(err)
	}
	report, err := postmortem.Read([]string{dir}, postmortem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if doing := report.Processes[0].Doing; len(doing) != 1 || doing[0].Seq != 1 || doing[0].Wait != 1 {
		t.Errorf("it is in %+v", doing)
	}
}

// TestEndedLongAgo: a rank ended a collective well, and busier communicators have overwritten its record. Its slot has
// it, so that the rank is not blamed for having given up the call that another rank is still in.
func TestEndedLongAgo(t *testing.T) {
	dir := t.TempDir()
	sig := tape.Signature{Call: lifecycle.CallBroadcast, Peer: 1, Bytes: 8}
	for rank := range 2 {
		info := tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: rank, Size: 2}
		f := &tapetest.Forge{PID: 1<<30 + rank, Host: "h", Job: "j", CreatedMono: 1, CreatedWall: 1}
		f.Comm(2, 1, info)
		f.Life(1, tape.LifeRecord{
			Time: 9, Start: 5, Act: tape.ActInit, Stage: tape.StageEnd, State: lifecycle.StateReady,
			Peer: -1,
		})
		slot := tape.Slot{
			CommInfo: info, Generation: 1, Root: 1, State: lifecycle.StateReady, Launched: 5, Completed: 5, Seq: 5,
			Begun: 5, Done: 5, Op: sig, OpStart: 20, LastEnd: 30, Wait: -1,
		}
		if rank == 0 {
			slot.Completed, slot.Done, slot.LastEnd, slot.Wait, slot.WaitSince = 4, 4, 19, 1, 21
		}
		f.Slots = []tape.Slot{slot}
		if err := f.WriteFile(filepath.Join(dir, strconv.Itoa(rank)+".tape")); err != nil {
			t.Fatal(err)
		}
	}
	report, err := postmortem.Read([]string{dir}, postmortem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if ranks := report.Comms[0].Ranks; ranks[0].Ended != 4 || ranks[1].Begun != 5 || ranks[1].Ended != 5 {
		t.Errorf("%+v", ranks)
	}
	for _, f := range report.Findings {
		if strings.Contains(f.Text.String(), "gave up") {
			t.Errorf("%s", f.Text)
		}
	}
}

// TestJobInOneProcess hangs three ranks of one process, of which one is not in the call, and reads the tape when they
// are gone.
func TestJobInOneProcess(t *testing.T) {
	dir := t.TempDir()
	w, err := tape.Create(tape.Config{Dir: dir, Job: "inproc"})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := ccl.New(ccl.Config{Engine: host.Kind(), Tape: w})
	if err != nil {
		t.Fatal(err)
	}
	comms, err := rt.InitAll(t.Context(), 3, ccl.WithName("world"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, c := range comms[:2] {
		wg.Go(func() {
			if err := ccl.Barrier(ctx, c); err == nil {
				t.Error("a barrier without rank 2 ended")
			}
		})
	}
	r, err := tape.Open(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for waiting := 0; waiting < 2; { // until the tape says that both wait
		waiting = 0
		for _, s := range r.Slots() {
			if s.Launched != s.Completed && s.Wait >= 0 {
				waiting++
			}
		}
		if t.Context().Err() != nil {
			t.Fatal("the ranks don't wait")
		}
	}
	// The tape is now as a process that is killed leaves it, except for the process's name.
	b, err := os.ReadFile(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	wg.Wait()
	for _, c := range comms {
		_ = c.Abort(nil) // it failed with the barrier
	}
	if err := errors.Join(rt.Close(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copied.tape")
	if err := os.WriteFile(copied, b, 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := postmortem.Read([]string{copied}, postmortem.Options{Last: 5})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Comms) != 1 || len(report.Comms[0].Ranks) != 3 || report.Comms[0].Ranks[0].Doing == nil {
		t.Fatalf("%+v", report.Comms)
	}
	if report.Comms[0].Ranks[2].Doing != nil || report.Comms[0].Ranks[1].Doing.Call != "barrier" {
		t.Errorf("%+v", report.Comms[0].Ranks)
	}
}

// TestJSON checks the names that programs read.
func TestJSON(t *testing.T) {
	s := newStage(t)
	s.play(`host here
process p0 here seen 10s
process p1 here seen 10s
1ms p0 comm world 0/2
1ms p1 comm world 1/2
2ms p0 op world barrier 1 0 -1 start
3ms p0 op world barrier 1 0 -1 wait 1`)
	s.write()
	report, err := postmortem.Read([]string{s.dir}, postmortem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"job":"train"`, `"ended":{"how":"failed"`, `"findings":[{"id":"`, `"reason":"not_entered"`, `"confidence":"`,
		`"at":"2026-`, `"processes":[{"rank":0,`, `"state":"died"`,
		`"doing":[{"comm":"world"`, `"call":"barrier","seq":1`, `"wait_rank":1`, `"since":"2026-11-20T12:00:00.002Z"`,
		`"trace_id":"`,
		`"communicators":[{"id":"`, `"ranks":[{"rank":0,`, `"clocks":[{"host":"here"`, `"source":"reference"`,
		`"events":[{"time":"2026-11-20T12:00:00.002Z"`, `"text":"barrier 1 began"`, `"problems":`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
}

func TestRunsOfOneJob(t *testing.T) {
	s := newStage(t)
	for i, at := range []time.Duration{0, time.Hour} {
		host := string(rune('a' + i))
		s.play("host " + host + " wall " + at.String() + "\nprocess p" + host + " " + host + " closed\n" +
			"1ms p" + host + " comm world-" + host + " 0/1\n2ms p" + host + " act world-" + host + " init 0 start")
	}
	s.write()
	for _, c := range []struct {
		run   int
		host  string
		other int
	}{{0, "b", 1}, {1, "a", 1}, {2, "b", 1}} {
		report, err := postmortem.Read([]string{s.dir}, postmortem.Options{Run: c.run})
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Processes) != 1 || report.Processes[0].Host != c.host || report.OtherRuns != c.other {
			t.Errorf("run %d: %+v, other runs %d", c.run, report.Processes, report.OtherRuns)
		}
	}
	if report, err := postmortem.Read([]string{s.dir}, postmortem.Options{Run: -1}); err != nil ||
		len(report.Processes) != 2 {
		t.Errorf("all runs: %v", err)
	}
	if _, err := postmortem.Read([]string{s.dir}, postmortem.Options{Run: 3}); err == nil {
		t.Error("there is a run 3")
	}
}

func TestWrongCalls(t *testing.T) {
	empty := t.TempDir()
	for _, c := range []struct {
		paths []string
		opts  postmortem.Options
		want  string
	}{
		{[]string{filepath.Join(empty, "no-such")}, postmortem.Options{}, "no-such"},
		{[]string{empty}, postmortem.Options{}, "no tapes"},
		{[]string{os.Args[0]}, postmortem.Options{}, "is no tape"},
		{[]string{empty}, postmortem.Options{Last: -1}, "Last is -1"},
		{[]string{empty}, postmortem.Options{Since: -1}, "Since is -1ns"},
		{[]string{empty}, postmortem.Options{Ranks: []int{-2}}, "Ranks has -2"},
	} {
		if _, err := postmortem.Read(c.paths, c.opts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %+v: %v, want %q in it", c.paths, c.opts, err, c.want)
		}
	}
	if _, err := postmortem.Read([]string{empty}, postmortem.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v is not os.ErrNotExist", err)
	}
}

// TestNarrow checks that no line is longer than the terminal.
func TestNarrow(t *testing.T) {
	script, err := os.ReadFile("testdata/badinput")
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t)
	_, text, _ := strings.Cut(string(script), "play\n")
	text, _, _ = strings.Cut(text, "\n----")
	s.play(text)
	s.write()
	report, err := postmortem.Read([]string{s.dir}, postmortem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var plain, colored strings.Builder
	if err := errors.Join(report.Write(&plain, postmortem.TextOptions{Width: 60}),
		report.Write(&colored, postmortem.TextOptions{Width: 60, Color: true})); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(plain.String()) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 60 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(colored.String(), "\x1b[1mWHAT HAPPENED") {
		t.Errorf("colours are where they should not be, or not where they should:\n%s", colored.String())
	}
	if err := report.Write(failing{}, postmortem.TextOptions{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v, want the writer's error", err)
	}
}

// failing is a closed pipe.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestAtTimeOfDay: a time without a day is on the day on which the tapes cover it, also after midnight. If they don't,
// the error names the day on which they begin.
func TestAtTimeOfDay(t *testing.T) {
	s := newStage(t)
	s.play("host a wall 11h59m59s\nprocess p0 a seen 2s\n1ms p0 comm world 0/1\n" +
		"100ms p0 act world init 0 start\n2s p0 act world init 0 ok")
	s.write()
	for clock, want := range map[string]string{
		"23:59:59.5": "", "00:00:00.5": "",
		"23:59:58": "don't cover 2026-11-20T23:59:58Z", "00:00:09": "don't cover 2026-11-20T00:00:09Z",
	} {
		at, err := time.Parse(time.TimeOnly, clock)
		if err != nil {
			t.Fatal(err)
		}
		_, err = postmortem.Read([]string{s.dir}, postmortem.Options{At: at})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("at %s: %v, want %q", clock, err, want)
		}
	}
}

// TestCaptured: the report names communicators with operations that were captured in graphs, also if they have ended.
func TestCaptured(t *testing.T) {
	dir := t.TempDir()
	w, err := tape.Create(tape.Config{Dir: dir, Job: "graphs"})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"eager", "one", "many"} {
		c := w.Comm(tape.CommInfo{ID: lifecycle.CommID{byte(i + 1)}, Name: name, Size: 1, Engine: "nccl 2.28.9"})
		for range i * i {
			n := c.Start(0, tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 8}, 0)
			c.Captured()
			c.End(n, lifecycle.CodeOK)
		}
		c.State(lifecycle.StateReady)
		if name == "many" {
			c.Close()
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := postmortem.Read([]string{dir}, postmortem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := r.Write(&text, postmortem.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"one: 1 operation captured in CUDA graphs, whose replays are not seen.\n",
		"many: 4 operations captured in CUDA graphs, whose replays are not seen.\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("it doesn't say %q", want)
		}
	}
	if strings.Contains(text.String(), "COMPLETED OPERATIONS") || strings.Contains(text.String(), "eager: ") {
		t.Error("captured operations are completed ones, or none was captured and it is said")
	}
	if t.Failed() {
		t.Log(text.String())
	}
}

// TestRefusedBeyondTheRing: if records of refused calls were overwritten, the report says that there were more.
func TestRefusedBeyondTheRing(t *testing.T) {
	dir := t.TempDir()
	w, err := tape.Create(tape.Config{Dir: dir, Job: "refused", LifeRecords: 64})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		c := w.Comm(tape.CommInfo{ID: lifecycle.CommID{byte(i), 1}, Size: 1})
		c.Life(tape.LifeRecord{
			Act: tape.ActDestroy, Call: lifecycle.CallDestroy, Stage: tape.StageMisuse, Code: lifecycle.CodeDestroyed,
			Peer: -1, Text: "it was destroyed before",
		})
		c.Close()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	report, err := postmortem.Read([]string{dir}, postmortem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := report.Write(&out, postmortem.TextOptions{}); err != nil ||
		!regexp.MustCompile(`it was destroyed before; at least \d+ such calls in all`).MatchString(out.String()) {
		t.Errorf("%v: %s", err, out.String())
	}
}
