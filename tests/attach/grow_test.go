package attach

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestGrow: when a communicator grows, only some of its members know the unique id of the growth, and the ranks that
// join have no parent. The grown communicator is the same on the tapes of all ranks. Splits, shrinks and grows are on
// no stream.
func TestGrow(t *testing.T) {
	t.Parallel()
	library := buildLibrary(t)
	const ranks = 4
	for _, c := range []struct {
		version, program string
		env              []string
	}{
		{"2.29.2", "life", nil}, {"2.31.2", "life", nil}, {"2.31.2", "grow", []string{"NCCL_COMM_BLOCKING=0"}},
	} {
		t.Run(c.version+" "+c.program, func(t *testing.T) {
			tapes, growth := t.TempDir(), filepath.Join(t.TempDir(), "growth")
			if err := syscall.Mkfifo(growth, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), fakenccl.Program(t, built, c.program), "processes", "4")
			cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+fakenccl.Build(t, built, c.version),
				"LD_PRELOAD="+library, "NCCL_PROFILER_PLUGIN="+library, "CARILLON_TAPE_DIR="+tapes,
				"GROWTH="+growth)
			cmd.Env = append(cmd.Env, c.env...)
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			paths, err := filepath.Glob(filepath.Join(tapes, "*", "*.tape"))
			if err != nil || len(paths) != ranks {
				t.Fatalf("tapes %v, %v; want %d", paths, err, ranks)
			}
			ids, places, measured := map[string]int{}, map[int]int{}, 0
			for _, path := range paths {
				r, err := tape.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				for ev, err := range r.Events() {
					if err != nil {
						t.Fatal(err)
					}
					if ev.IsLife && ev.Life.Act == tape.ActInit && ev.Life.Stage == tape.StageEnd &&
						ev.Life.Call == lifecycle.CallGrow && ev.Life.Code == lifecycle.CodeOK {
						ids[ev.Comm.ID.String()]++
						places[ev.Comm.Rank]++
					}
					switch {
					case ev.IsLife || ev.Op.Stage != tape.StageDevice:
					case ev.Op.Signature.Call.IsOperation():
						measured++
					default:
						t.Errorf("a device's time is measured of %+v, which is on no stream", ev.Op)
					}
				}
				_ = r.Close()
			}
			if len(ids) != 1 || len(places) != ranks {
				t.Errorf("of the grown one there are the ids %v and the ranks %v", ids, places)
			}
			if measured == 0 {
				t.Error("a device's time is measured of no operation")
			}
		})
	}
}

// TestGrowHangs: a rank doesn't make the call that grows a communicator. If it was to join, it is on no tape, and the
// report says so of the ranks that wait; if it is a member of the communicator that grows, it is named, and the rank
// that joins is one of those that wait for it.
func TestGrowHangs(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	for away, want := range map[int]string{
		3: `not_joined"[^§]*"text": "grow 1 of \w+ waits for joining ranks that have not arrived; ` +
			`ranks 0 to 2 wait"`,
		1: `not_joined"[^§]*"text": "rank 1 \([^)]*\) has not joined grow 1 of [^§]*; ranks 0, 2 and 3 wait"`,
	} {
		t.Run(fmt.Sprint("rank ", away), func(t *testing.T) {
			tapes, growth := t.TempDir(), filepath.Join(t.TempDir(), "growth")
			if err := syscall.Mkfifo(growth, 0o600); err != nil {
				t.Fatal(err)
			}
			input, end := openInput(t)
			job := e2e.Start(t, []string{
				fmt.Sprint("AWAY=", away), "GROWTH=" + growth, "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.31.2"),
				"CARILLON_HEALTH_ADDR=", "CARILLON_STALL_THRESHOLD=500ms",
			}, "carillon", "attach", "--tape-dir", tapes, "--job", "grows", "--", "sh", "-c",
				`exec "$0" processes 4 <`+input, fakenccl.Program(t, built, "grow"))
			report(t, want, filepath.Join(tapes, "grows"))
			end()
			if code := job.ExitCode(); code != 0 {
				t.Errorf("exit code %d:\n%s", code, job.Output())
			}
		})
	}
}
