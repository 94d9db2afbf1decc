package attach

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestCapturedInAGraph: operations that are captured in a CUDA graph are distinguished from launched ones, and the
// report says that launches of the graph are not seen. With interposition this covers all operations, and with only the
// plug-in the collectives.
func TestCapturedInAGraph(t *testing.T) {
	t.Parallel()
	library := buildLibrary(t)
	collectives := []string{"all_reduce 2", "all_reduce 3", "all_reduce 4", "all_reduce 5", "all_reduce 6"}
	for _, c := range []struct {
		name string
		env  []string
		want []string
	}{
		{"interposed", []string{"LD_PRELOAD=" + library}, append(slices.Clone(collectives), "recv 1", "send 1")},
		{"the plug-in alone", nil, collectives},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tapes := t.TempDir()
			input, end := openInput(t)
			agent(t, tapes)
			job := e2e.Start(t, append(c.env, "NCCL_PROFILER_PLUGIN="+library, "CARILLON_JOB=graph",
				"LD_LIBRARY_PATH="+fakenccl.Build(t, built, "2.28.9"), "CARILLON_TAPE_DIR="+tapes,
			), "sh", "-c", `exec "$0" processes 2 <`+input, fakenccl.Program(t, built, "graph"))
			for rank := range 2 {
				job.Await(fmt.Sprintf("^rank %d of process .* has replayed$", rank))
			}
			says := fmt.Sprintf("%d operations captured in CUDA graphs, whose replays are not seen", len(c.want))
			report(t, fmt.Sprintf(`"status": "ok"[^§]*"captured": %d\b`, len(c.want)), tapes)
			status := e2e.Start(t, nil, "carillon", "status", tapes)
			status.Await(`^VERDICTS +none: .* \(replays of CUDA graphs are not seen\)$`)
			status.Await(`  2 ranks, ` + says + `$`)
			e2e.Start(t, nil, "carillon", "comms", tapes).Await(`  (init, )?` + says + ` +ready$`)
			end()
			if code := job.ExitCode(); code != 0 {
				t.Errorf("the job's exit code is %d", code)
			}
			after := e2e.Start(t, nil, "carillon", "postmortem", tapes)
			after.Await(`^  As far as the tapes show, nothing went wrong: `)
			after.Await(`^  ` + says + `\.$`)
			paths, err := filepath.Glob(filepath.Join(tapes, "graph", "*.tape"))
			if err != nil || len(paths) != 2 {
				t.Fatalf("tapes %v, %v; want two", paths, err)
			}
			for _, path := range paths {
				captured, counted := capturedOn(t, path)
				if diff := cmp.Diff(c.want, captured); diff != "" {
					t.Errorf("captured (-want +got):\n%s", diff)
				}
				if want := uint64(2 + 7 - len(c.want)); counted != want {
					t.Errorf("%d operations are counted as done, want %d", counted, want)
				}
			}
		})
	}
}

// capturedOn returns the operations that a tape has as captured, and the number of others that it counts.
func capturedOn(t *testing.T, path string) (captured []string, counted uint64) {
	t.Helper()
	r, err := tape.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for ev, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if o := &ev.Op; !ev.IsLife && o.Phase == tape.PhaseCaptured {
			captured = append(captured, fmt.Sprintf("%v %d", o.Signature.Call, o.Seq))
		}
	}
	tallies, err := r.AppendTallies(nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range tallies {
		counted += tallies[i].Count()
	}
	slices.Sort(captured)
	return captured, counted
}
