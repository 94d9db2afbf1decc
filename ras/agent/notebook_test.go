package agent

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// written is a tape and the notebook that reads it.
type written struct {
	t      *testing.T
	writer *tape.Writer
	reader *tape.Reader
	book   *notebook
}

func write(t *testing.T) *written {
	t.Helper()
	w, err := tape.Create(tape.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r, err := tape.Open(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = w.Close(), r.Close() }) // of a file that goes away
	return &written{t, w, r, newNotebook()}
}

// read gives the notebook all events, and returns what a note says then.
func (w *written) read() []verdict.Slot {
	w.t.Helper()
	w.book = newNotebook()
	for ev, err := range w.reader.Events() {
		if err != nil {
			w.t.Fatal(err)
		}
		w.book.observe(&ev)
	}
	return w.slots(tape.Now())
}

func (w *written) slots(now int64) []verdict.Slot { return w.book.slots(w.reader.Slots(), now) }

func world() tape.CommInfo {
	return tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 1, Size: 4, Engine: "host"}
}

func TestOpenActsAreInTheNote(t *testing.T) {
	w := write(t)
	c := w.writer.Comm(world())
	start := tape.Now() - int64(3*time.Second)
	c.Life(tape.LifeRecord{Time: start, Act: tape.ActInit, Stage: tape.StageStart, Start: start, Site: lifecycle.Site{File: "/src/train.go", Line: 7}})
	c.Life(tape.LifeRecord{Act: tape.ActInit, Stage: tape.StagePhase, Start: start, Phase: tape.PhaseConnect})
	s := w.read()
	if len(s) != 1 || len(s[0].Acts) != 1 {
		t.Fatalf("the note has %+v, want one open act", s)
	}
	a := s[0].Acts[0]
	if a.Act != tape.ActInit || a.Phase != tape.PhaseConnect || a.Site != "train.go:7" || a.Age < 3*time.Second || a.Age > time.Minute || a.Stalled {
		t.Errorf("the open act is %+v", a)
	}
	// generation is the table's; a stall report knows it from there.
	w.book.report(&stall.Report{Stage: stall.Stalled, Count: 1, Act: tape.ActInit, Generation: w.reader.Slots()[0].Generation})
	if s := w.slots(tape.Now()); !s[0].Acts[0].Stalled {
		t.Error("the act isn't stalled")
	}
	c.Life(tape.LifeRecord{Act: tape.ActInit, Stage: tape.StageEnd, Start: start})
	if s := w.read(); len(s[0].Acts) != 0 {
		t.Errorf("the act is open after its end: %+v", s[0].Acts)
	}
}

// TestActsAreBounded: on a tape that is overwritten before it is read, acts only begin.
func TestActsAreBounded(t *testing.T) {
	book := newNotebook()
	for seq := range uint64(2 * maxActs) {
		book.observe(&tape.Event{IsLife: true, Generation: 1, Comm: world(), Life: tape.LifeRecord{
			Time: 1, Start: 1, Act: tape.ActGroup, Seq: seq, Stage: tape.StageStart,
		}})
	}
	if n := len(book.comms[1].acts); n != maxActs {
		t.Errorf("%d acts are remembered, want %d", n, maxActs)
	}
}

// TestLaterGroupEndsEarlierOnes: groups of a communicator are made one after another, so that the good end of one says that
// those before it are over, though their ends were overwritten before they were read. One that isn't made, or that began
// later, or other acts, are no sign of that.
func TestLaterGroupEndsEarlierOnes(t *testing.T) {
	begin := tape.LifeRecord{Act: tape.ActGroup, Seq: 3, Stage: tape.StageStart, Start: 30, Time: 30}
	for name, c := range map[string]struct {
		end  tape.LifeRecord
		open bool
	}{
		"a later group":                       {tape.LifeRecord{Act: tape.ActGroup, Seq: 5, Start: 50}, false},
		"a later one that failed":             {tape.LifeRecord{Act: tape.ActGroup, Seq: 5, Start: 50, Code: lifecycle.CodeInvalidUsage}, true},
		"an earlier one":                      {tape.LifeRecord{Act: tape.ActGroup, Seq: 2, Start: 20}, true},
		"one of other numbers, begun earlier": {tape.LifeRecord{Act: tape.ActGroup, Seq: 1_000_000_001, Start: 20}, true},
		"a split":                             {tape.LifeRecord{Act: tape.ActSplit, Seq: 5, Start: 50}, true},
	} {
		book := newNotebook()
		book.observe(&tape.Event{IsLife: true, Generation: 1, Comm: world(), Life: begin})
		c.end.Stage, c.end.Time = tape.StageEnd, 60
		book.observe(&tape.Event{IsLife: true, Generation: 1, Comm: world(), Life: c.end})
		if open := len(book.comms[1].acts) == 1; open != c.open {
			t.Errorf("after the end of %s, the group is open: %v, want %v", name, open, c.open)
		}
	}
}

func TestStalledOperationsAreInTheNote(t *testing.T) {
	w := write(t)
	c := w.writer.Comm(world())
	launched := c.Start(1, tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 8}, 0)
	g := w.reader.Slots()[0].Generation
	info := world()
	rep := stall.Report{Stage: stall.Slow, Comm: info, Generation: g, Seq: 1}
	if w.book.report(&rep) || w.slots(tape.Now())[0].Stalled {
		t.Error("what is slow is news, or stalled")
	}
	rep.Stage, rep.Count = stall.Stalled, 1
	if !w.book.report(&rep) || !w.slots(tape.Now())[0].Stalled {
		t.Error("what is stalled is no news, or not stalled in the note")
	}
	rep.Stage = stall.Cleared
	if !w.book.report(&rep) || w.slots(tape.Now())[0].Stalled {
		t.Error("its end is no news, or it is stalled still")
	}
	rep.Count = 0
	if w.book.report(&rep) {
		t.Error("the end of what was slow alone is news")
	}
	c.End(launched, lifecycle.CodeOK)
}

// A failure is told after its communicator is gone, for as long as anybody may ask for the reason.
func TestFailureOutlivesItsCommunicator(t *testing.T) {
	w := write(t)
	c := w.writer.Comm(world())
	c.Life(tape.LifeRecord{Stage: tape.StageEnd, Code: lifecycle.CodeRankDead, Call: lifecycle.CallAllReduce, Peer: 3, Text: "rank 3 died", State: lifecycle.StateFailed})
	c.Life(tape.LifeRecord{Act: tape.ActAbort, Stage: tape.StageStart})
	c.Life(tape.LifeRecord{Act: tape.ActAbort, Stage: tape.StageEnd})
	c.Close()
	s := w.read()
	if len(s) != 1 || s[0].Failure == nil || s[0].Comm != world().ID || s[0].Rank != 1 || s[0].Size != 4 {
		t.Fatalf("the note has %+v, want the failure of a communicator that is gone", s)
	}
	if f := s[0].Failure; f.Code != lifecycle.CodeRankDead || f.Peer != 3 || f.Text != "rank 3 died" || f.Call != lifecycle.CallAllReduce {
		t.Errorf("the failure is %+v", f)
	}
	if s := w.slots(tape.Now() + int64(failureTime)); len(s) != 0 {
		t.Errorf("after %v it is still told: %+v", failureTime, s)
	}
	good := w.writer.Comm(world())
	good.Life(tape.LifeRecord{Act: tape.ActDestroy, Stage: tape.StageStart})
	good.Life(tape.LifeRecord{Act: tape.ActDestroy, Stage: tape.StageEnd})
	good.Close()
	if s := w.slots(tape.Now() + int64(failureTime)); len(s) != 0 {
		t.Errorf("of one that ended well remains %+v", s)
	}
}

func wait(n *notebook, rank int32, now int64) {
	n.observe(&tape.Event{Generation: 1, Comm: world(), Op: tape.OpRecord{Stage: tape.StageWait, Wait: rank, Time: now}})
}

// Waits are summed up over the current window and the one before; a wait that lasts makes nobody a straggler.
func TestWaitsAreSummedUp(t *testing.T) {
	n := newNotebook()
	const ms, s = int64(time.Millisecond), int64(time.Second)
	table := []tape.Slot{{CommInfo: world(), Generation: 1, Wait: -1}}
	at := 100 * s
	for range 30 { // 30 s in which half of the time goes by waiting for rank 2
		wait(n, 2, at)
		wait(n, -1, at+500*ms)
		at += s
	}
	slot := n.slots(table, at)[0]
	if len(slot.Waited) != 1 || slot.Waited[0] != (verdict.Waited{Rank: 2, Time: 15 * time.Second, Ops: 30}) || slot.Window < 29*time.Second || slot.Window > 30*time.Second {
		t.Errorf("waited for %+v within %v, want 15s of 30s for rank 2", slot.Waited, slot.Window)
	}
	if !n.heldUp(at) {
		t.Error("that is not worth a look")
	}
	at += 60 * s // in which nobody waited
	if slot := n.slots(table, at)[0]; len(slot.Waited) > 0 && slot.Waited[0].Time > slot.Window/heldShare || n.heldUp(at) {
		t.Errorf("a minute later: %+v within %v", slot.Waited, slot.Window)
	}
	n = newNotebook()
	wait(n, 3, at)
	wait(n, -1, at+50*s)
	for range 10 {
		wait(n, 3, at+50*s)
		wait(n, -1, at+50*s+ms)
	}
	if w := n.slots(table, at+55*s)[0].Waited; len(w) != 1 || w[0].Time > 2*longestWait {
		t.Errorf("one wait of 50s counts as %+v, want at most %v", w, longestWait)
	}
}

// childVariable makes the test's program write a tape into that directory and wait for its end.
const childVariable = "AGENT_TEST_TAPES"

// writeAndWait is a process that is in an all-reduce and in a split when it is killed.
func writeAndWait(dir string) {
	w, err := tape.Create(tape.Config{Dir: dir, Job: "job", Host: "host"})
	if err != nil {
		os.Exit(3)
	}
	c := w.Comm(world())
	c.State(lifecycle.StateReady)
	c.Start(1, tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 8}, 0)
	c.Wait(2)
	c.Life(tape.LifeRecord{Act: tape.ActSplit, Stage: tape.StageStart, Seq: 1})
	if _, err := os.Stdout.WriteString("written\n"); err != nil {
		os.Exit(4)
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed, or its parent is gone
	os.Exit(0)
}

func TestDeadProcessIsSpokenForFromItsTape(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+dir)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Exited() {
		t.Fatalf("the process ended with %v, want a signal", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "job", "*.tape"))
	if err != nil || len(files) != 1 {
		t.Fatalf("tapes: %v, %v", files, err)
	}
	name := filepath.Base(files[0])
	local := FromTapes(filepath.Join(dir, "job"), tape.Now)
	n, ok := local(mesh.Member{Name: name[:len(name)-len(".tape")], Host: "host", ID: process.ID{PID: cmd.Process.Pid}, Rank: 1, JobSize: 4})
	if !ok || n.Rank != 1 || n.PID != cmd.Process.Pid || len(n.Slots) != 1 {
		t.Fatalf("the note is %+v (%v)", n, ok)
	}
	s := n.Slots[0]
	if s.InFlight != 1 || s.Op.Call != lifecycle.CallAllReduce || s.Wait != 2 || s.Comm != world().ID || s.Age <= 0 {
		t.Errorf("it was in %+v, want an all-reduce that waits for rank 2", s)
	}
	if len(s.Acts) != 1 || s.Acts[0].Act != tape.ActSplit {
		t.Errorf("its open acts are %+v, want a split", s.Acts)
	}
	for _, bad := range []string{"../job/" + name[:len(name)-len(".tape")], "host-0", "..", ""} {
		if n, ok := local(mesh.Member{Name: bad}); ok {
			t.Errorf("%q has a note: %+v", bad, n)
		}
	}
}

// TestClosedInOrder: a communicator that was destroyed is noted for a while, one that had failed or was aborted is not.
func TestClosedInOrder(t *testing.T) {
	book, id := newNotebook(), func(n byte) lifecycle.CommID { return lifecycle.CommID{n} }
	end := func(n byte, act tape.Act, code lifecycle.Code) {
		book.observe(&tape.Event{
			IsLife: true, Generation: uint32(n), Comm: tape.CommInfo{ID: id(n)},
			Life: tape.LifeRecord{Act: act, Stage: tape.StageEnd, Code: code, Time: 1000 * int64(n)},
		})
	}
	end(1, tape.ActDestroy, lifecycle.CodeOK)
	end(2, tape.ActAbort, lifecycle.CodeOK)
	book.observe(&tape.Event{
		IsLife: true, Generation: 3, Comm: tape.CommInfo{ID: id(3)}, Life: tape.LifeRecord{Code: lifecycle.CodeRankDead, Peer: 1},
	})
	end(3, tape.ActDestroy, lifecycle.CodeOK)
	end(4, tape.ActDestroy, lifecycle.CodeInternal)
	end(5, tape.ActDestroy, lifecycle.CodeOK)
	if got, want := book.closedLately(6000), []lifecycle.CommID{id(1), id(5)}; !slices.Equal(got, want) {
		t.Errorf("closed: %v, want %v", got, want)
	}
	if got, want := book.closedLately(1000+int64(closedTime)), []lifecycle.CommID{id(5)}; !slices.Equal(got, want) {
		t.Errorf("later: %v, want %v", got, want)
	}
	for n := range byte(100) {
		end(100+n, tape.ActDestroy, lifecycle.CodeOK)
	}
	if got := book.closedLately(300_000); len(got) != maxClosed || got[maxClosed-1] != id(199) {
		t.Errorf("%d are noted, want the last %d", len(got), maxClosed)
	}
}
