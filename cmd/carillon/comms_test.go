package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/runtime/ccl"
	hostengine "github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// record runs fn on a runtime whose tape is made below dir.
func record(t *testing.T, dir string, fn func(ctx context.Context, rt *ccl.Runtime) error) {
	t.Helper()
	w, err := tape.Create(tape.Config{Dir: dir, Job: "test"})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := ccl.New(ccl.Config{Engine: hostengine.Kind(), Tape: w})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(fn(t.Context(), rt), rt.Close(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestReportOfALife(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, func(ctx context.Context, rt *ccl.Runtime) error {
		comm, err := rt.World(ctx)
		if err != nil {
			return err
		}
		child, err := comm.Split(ctx, 3, 0, ccl.WithName("half"))
		if err != nil {
			return err
		}
		for range 5 {
			if err := ccl.Barrier(ctx, child); err != nil {
				return err
			}
		}
		if err := errors.Join(child.Destroy(ctx), comm.Destroy(ctx)); err != nil {
			return err
		}
		if comm.Destroy(ctx) == nil {
			return errors.New("the second Destroy succeeded")
		}
		return nil
	})
	if err := os.WriteFile(filepath.Join(dir, "test", "broken.tape"), []byte("not a tape"), 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := readComms([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Comms) != 2 || report.Tapes != 1 || len(report.Broken) != 1 {
		t.Fatalf("%d communicators on %d tapes, %d broken; want 2, 1 and 1", len(report.Comms), report.Tapes,
			len(report.Broken))
	}
	world, half := report.Comms[0], report.Comms[1]
	if world.Name != "world" || half.Name != "half" || half.Parent != world.ID || half.Operations != 5 {
		t.Errorf("the communicators are %+v and %+v", world, half)
	}
	var out strings.Builder
	if err := report.write(&out); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"init, split 1, destroy (1 error)", "init, destroy ", "destroyed", "comms_test.go", "broken.tape",
		world.Acts[0].TraceID, half.Acts[0].TraceID,
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the report does not say %q:\n%s", part, out.String())
		}
	}
}

// A rank that vanishes is named, and what the others report about it is shown once.
func TestReportOfADeath(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, func(_ context.Context, _ *ccl.Runtime) error {
		w, err := tape.Create(tape.Config{Dir: dir, Job: "test"})
		if err != nil {
			return err
		}
		for rank := range 3 {
			c := w.Comm(tape.CommInfo{ID: lifecycle.CommID{1}, Name: "dp", Rank: rank, Size: 3})
			c.Life(tape.LifeRecord{Act: tape.ActInit, Stage: tape.StageStart, State: lifecycle.StateReady})
			c.Life(tape.LifeRecord{
				Call: lifecycle.CallAllReduce, Stage: tape.StageEnd, Code: lifecycle.CodeRankDead,
				State: lifecycle.StateFailed, Peer: 7,
				Text: fmt.Sprintf("seen by %d", rank),
			})
		}
		return w.Close()
	})
	report, err := readComms([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := report.write(&out); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.Contains(s, "rank_dead in operation of dp, on ranks 0 to 2 of dp: seen by 0") ||
		strings.Contains(s, "seen by 1") {
		t.Errorf("the report is\n%s", s)
	}
}

func TestNoTapes(t *testing.T) {
	dir := t.TempDir()
	if _, err := readComms([]string{dir}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), dir) {
		t.Errorf("%v, want an error that names the folder", err)
	}
}

// This host's tapes don't tell what ranks on other hosts do: then rails are named.
func TestTopologyOfOneHost(t *testing.T) {
	var out strings.Builder
	err := topologyOf(&commsReport{Comms: []postmortem.Comm{{
		Name: "world", Size: 4, Nodes: 2, Ranks: []postmortem.Rank{
			{Rank: 0, Place: tape.Place{Locals: 2, Connections: 1, PXN: tape.PXNOn}},
			{Rank: 1, Place: tape.Place{Locals: 2, Local: 1, Connections: 1, PXN: tape.PXNOn}},
		},
	}}}).write(&out)
	if err != nil || !strings.Contains(out.String(), "rail 1 of other nodes") ||
		!strings.Contains(out.String(), "2 ranks left no tape here") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}

// TestUnknownNodes: if an engine doesn't tell the number of a communicator's nodes, it is unknown, not 0.
func TestUnknownNodes(t *testing.T) {
	report := &commsReport{Comms: []postmortem.Comm{{Name: "world", Size: 2, Engine: "nccl 2.18.1"}}}
	var out strings.Builder
	if err := report.write(&out); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^world +\S+ +0 of 2 +- +nccl 2\.18\.1 `).MatchString(out.String()) {
		t.Errorf("it says\n%s", out.String())
	}
}
