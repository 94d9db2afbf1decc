package attach

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestDepth: NCCL is asked what its kernels and proxies do only for the first operation, or group, of each
// communicator. With two nodes of two ranks each, the last rank of a node sends to the first rank of the other.
func TestDepth(t *testing.T) {
	t.Parallel()
	library := buildLibrary(t)
	const alone = "" // only the plug-in, without interposition
	for _, c := range []struct {
		preload, ring, first string
		versions             []string
	}{
		{library, "", "all_reduce", []string{"2.24.3", "2.26.2", "2.28.9", "2.31.2"}},
		{library, "RING=1", "send", []string{"2.24.3", "2.28.9", "2.31.2"}},
		{alone, "", "all_reduce", []string{"2.24.3", "2.26.2", "2.28.9", "2.31.2"}},
		{alone, "RING=1", "recv", []string{"2.28.9", "2.31.2"}},
	} {
		for _, version := range c.versions {
			t.Run(fmt.Sprintf("%s, interposed: %v %s", version, c.preload != alone, c.ring), func(t *testing.T) {
				dir := t.TempDir()
				traffic(t, version, c.ring, "NCCL_PXN_DISABLE=1", "CARILLON_TAPE_DIR="+dir, "CARILLON_JOB=traffic",
					"LD_PRELOAD="+c.preload, "NCCL_PROFILER_PLUGIN="+library)
				var got []string
				for _, path := range tapesIn(t, filepath.Join(dir, "traffic")) {
					got = append(got, parts(t, path, version)...)
				}
				slices.Sort(got)
				if want := wantedParts(version, c.first); !slices.Equal(got, want) {
					t.Errorf("on the tapes:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		}
	}
}

// wantedParts returns the parts of the first operation of traffic's four ranks.
func wantedParts(version, first string) (want []string) {
	for rank := range 4 {
		if rank%2 == 1 {
			want = append(want, fmt.Sprintf("%d: %s 1 sent to rank %d", rank, first, (rank+1)%4))
		}
		if version > "2.26" {
			want = append(want, fmt.Sprintf("%d: the kernel of %s 1 ran", rank, first))
		}
		if version > "2.31" {
			want = append(want, fmt.Sprintf("%d: the kernel of %s 1 waited for others", rank, first))
		}
	}
	return want
}

// tapesIn returns the four tapes of a job, in its folder.
func tapesIn(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.tape"))
	if err != nil || len(paths) != 4 {
		t.Fatalf("tapes %v, %v; want four", paths, err)
	}
	return paths
}

// parts returns the parts of operations on a tape.
func parts(t *testing.T, path, version string) (found []string) {
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
		if ev.IsLife || !ev.Op.IsPart() {
			continue
		}
		o := &ev.Op
		if o.Start <= 0 || o.Time <= o.Start {
			t.Errorf("a part of an operation is from %d to %d", o.Start, o.Time)
		}
		text := fmt.Sprintf("%d: the kernel of %v %d ran", ev.Comm.Rank, o.Signature.Call, o.Seq)
		if o.Phase == tape.PhaseAgree {
			text = strings.TrimSuffix(text, "ran") + "waited for others"
		}
		if s := o.Proxied(); o.IsProxied() {
			text = fmt.Sprintf("%d: %v %d sent to rank %d", ev.Comm.Rank, o.Signature.Call, o.Seq, s.Peer)
			if int(s.Carrier) != ev.Comm.Rank || s.Waited == tape.PhaseNone ||
				(s.Bytes == 0) != (version < "2.26") {
				t.Errorf("%s: %+v", text, s)
			}
		}
		found = append(found, text)
	}
	return found
}

// TestCut: the network accepts what a rank sends to another node, and delivers none of it. All ranks have launched the
// operation, or their messages. The two ranks are named, also by the post-mortem.
func TestCut(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	for _, c := range []struct{ name, ring, says string }{
		{"all-reduce", "", `all ranks are in all_reduce 1 `},
		{"messages", "RING=1", `both have called for their messages `},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cut(t, c.ring, c.says)
		})
	}
}

func cut(t *testing.T, ring, says string) {
	t.Helper()
	tapes := t.TempDir()
	job := e2e.Start(t, []string{
		ring, "FAKENCCL_CUT=1", "NODES=node", "NCCL_PXN_DISABLE=1", "SURVIVE=1",
		"LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "CARILLON_TAPE_DIR=" + tapes, "CARILLON_HEALTH_ADDR=",
		"CARILLON_STALL_THRESHOLD=1s",
	}, "carillon", "attach", "--job", "cut", "--", fakenccl.Program(t, built, "traffic"), "processes", "4")
	cut := says + `[^§]*no data has moved from rank 1 [^§]*to rank 2\b`
	report(t, `"reason": "transport"[^§]*`+cut, tapes)
	for _, path := range tapesIn(t, filepath.Join(tapes, "cut")) {
		pid, err := strconv.Atoi(strings.TrimSuffix(path[strings.LastIndexByte(path, '-')+1:], ".tape"))
		if err != nil {
			t.Fatal(err)
		}
		e2e.Kill(t, pid, syscall.SIGKILL)
	}
	job.ExitCode()
	e2e.Start(t, nil, "carillon", "postmortem", tapes).Await(cut)
}
