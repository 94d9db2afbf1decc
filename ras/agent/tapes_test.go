package agent

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

func world() tape.CommInfo {
	return tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 1, Size: 4, Engine: "host"}
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
	local := FromTapes(filepath.Join(dir, "job"), model.Limits{}, tape.Now)
	n, ok := local(mesh.Member{
		Name: name[:len(name)-len(".tape")], Host: "host", ID: process.ID{PID: cmd.Process.Pid},
		Rank: 1, JobSize: 4,
	})
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
