package attach

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestNCCLTellsOfRanksWithoutTape: in a job that is held up, in which only one rank has the library, the agent names
// another rank while that one doesn't answer NCCL's RAS, and one that has ended.
func TestNCCLTellsOfRanksWithoutTape(t *testing.T) {
	t.Parallel()
	tapes := t.TempDir()
	ras, pids := without(t, "2.31.2", tapes)
	e2e.Kill(t, pids[3], syscall.SIGSTOP)
	agent(t, tapes, ras)
	said := report(t, `"reason": "rank_unreachable"`, tapes)
	want := fmt.Sprintf(`rank 3 \(\S+, pid %d\) stopped answering \S+ ago: it doesn't answer NCCL`, pids[3])
	if !regexp.MustCompile(want).MatchString(said) {
		t.Errorf("want %q:\n%s", want, said)
	}
	e2e.Kill(t, pids[3], syscall.SIGCONT)
	e2e.Kill(t, pids[2], syscall.SIGKILL)
	report(t, fmt.Sprintf(`"text": "rank 2 \(\S+, pid %d\) stopped answering \S+ ago: NCCL considers it dead`, pids[2]),
		tapes)
}

// TestNCCLIsNotAsked: a version that is known to crash isn't asked; carillon status says why, and which flag takes the
// risk.
func TestNCCLIsNotAsked(t *testing.T) {
	t.Parallel()
	tapes := t.TempDir()
	ras, pids := without(t, "2.28.9", tapes)
	e2e.Kill(t, pids[3], syscall.SIGSTOP)
	trap, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if conn, err := trap.Accept(); err == nil {
			t.Error("it is asked")
			conn.Close()
		}
	}()
	first, _ := agent(t, tapes, "NCCL_RAS_ADDR="+trap.Addr().String())
	said := report(t, `"code": "nccl_not_asked"`, tapes)
	want := `(?s)NCCL 2\.28\.9 is not asked, as that may crash the job: ` +
		`.*#1762.*#1996.*--accept-nccl-bugs=1762,1996 `
	if !regexp.MustCompile(want).MatchString(said) {
		t.Errorf("want %q:\n%s", want, said)
	}
	first.Signal(syscall.SIGTERM)
	first.ExitCode()
	trap.Close()
	second := e2e.Start(t, []string{ras, "CARILLON_STALL_THRESHOLD=500ms"}, "carillon", "agent", "--tape-dir", tapes,
		"--accept-nccl-bugs", "1762,1996")
	second.Await(fmt.Sprintf(`rank 3 \(\S+, pid %d\) stopped answering`, pids[3]))
}

// TestNCCLIsAskedWhenItIsQuiet: asking while a communicator is made has crashed jobs. The agent wants to ask, as two
// ranks have no tape, and asks after a split for which a rank came late is over.
func TestNCCLIsAskedWhenItIsQuiet(t *testing.T) {
	t.Parallel()
	library, tapes := buildLibrary(t), t.TempDir()
	trap, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer trap.Close()
	asked := make(chan struct{})
	go func() {
		if conn, err := trap.Accept(); err == nil {
			close(asked)
			conn.Close()
		}
	}()
	input, _ := openInput(t)
	late, join := openInput(t)
	id := ""
	for rank := range 4 {
		env := []string{
			"LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.31.2"), "ID=" + id, fmt.Sprint("RANK=", rank),
			"WORLD_SIZE=4", "LATE=split", "IN=" + input,
		}
		if rank < 2 {
			env = append(env, "LD_PRELOAD="+library, "CARILLON_TAPE_DIR="+tapes, "CARILLON_JOB=late")
		}
		if rank == 3 {
			env = append(env, "IN="+late)
		}
		job := e2e.Start(t, env, "sh", "-c", `exec "$0" rank $RANK 4 <"$IN"`, fakenccl.Program(t, built, "held"))
		if rank == 0 {
			id = job.Await(`^id ([0-9a-f]+)$`)[1]
		}
	}
	e2e.Start(t, []string{"NCCL_RAS_ADDR=" + trap.Addr().String(), "CARILLON_STALL_THRESHOLD=500ms"},
		"carillon", "agent", "--tape-dir", tapes)
	for since := ""; since == ""; { // the agent waits five seconds for tapes, and checks each second whether to ask
		status := e2e.Start(t, nil, "carillon", "status", tapes)
		status.ExitCode()
		since = regexp.MustCompile(`split, for (9\.|\d\d|\d+m)`).FindString(status.Output())
	}
	select {
	case <-asked:
		t.Fatal("NCCL is asked while a rank stays away from a split")
	default:
	}
	join()
	select {
	case <-asked:
	case <-time.After(patience):
		t.Error("NCCL is not asked when the split is over")
	}
}

// without starts a job of four ranks on a version of NCCL, in which only rank 0 has the library, and a tape below a
// folder. In the end three ranks wait for an all-reduce that rank 3 doesn't make. Each rank serves NCCL's RAS at an
// address of its own, as on a host of its own; ras is the variable with that of rank 0.
func without(t *testing.T, version, tapes string) (ras string, pids [4]int) {
	t.Helper()
	library := buildLibrary(t)
	program, libraries := fakenccl.Program(t, built, "held"), fakenccl.Build(t, built, version)
	input := filepath.Join(t.TempDir(), "input")
	if err := syscall.Mkfifo(input, 0o600); err != nil {
		t.Fatal(err)
	}
	id := ""
	var jobs [4]*e2e.Job
	for rank := range jobs {
		env := []string{
			"NCCL_RAS_ADDR=" + e2e.FreeAddr(t), "LD_LIBRARY_PATH=" + libraries, "ID=" + id,
			fmt.Sprint("RANK=", rank), "WORLD_SIZE=4", "SKIP=1",
		}
		if rank == 0 {
			ras = env[0]
			env = append(env, "LD_PRELOAD="+library, "CARILLON_TAPE_DIR="+tapes, "CARILLON_JOB=half")
		}
		jobs[rank] = e2e.Start(t, env, "sh", "-c", `exec "$0" rank $RANK 4 <>`+input, program) // the input has no end
		if rank == 0 {
			id = jobs[0].Await(`^id ([0-9a-f]+)$`)[1]
		}
	}
	for rank, job := range jobs {
		pids[rank] = job.AwaitPID(`^rank \d of process (\d+) is held$`)
	}
	return ras, pids
}
