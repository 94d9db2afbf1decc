package job

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle/words"
)

const secret = "nobody must know this"

func TestRanksGetTheirEnvironment(t *testing.T) {
	// Variables that another job left in the launcher's environment would mislead the ranks.
	t.Setenv("CARILLON_RANK", "17")
	t.Setenv("CARILLON_ADDRESS", "10.0.0.1:1")
	t.Setenv("CARILLON_JOB_SECRET", secret)
	tapes := filepath.Join(t.TempDir(), "tapes")
	j := begin(t, "env", Config{Ranks: 5, Nodes: 2, Name: "my-job", Secret: secret, MasterPort: 4242, TapeDir: tapes})
	if code := j.end().ExitCode(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for rank, p := range []place{{0, 0, 3}, {0, 1, 3}, {0, 2, 3}, {1, 0, 2}, {1, 1, 2}} {
		for _, kv := range []string{
			fmt.Sprint("RANK=", rank), "WORLD_SIZE=5",
			fmt.Sprint("LOCAL_RANK=", p.local), fmt.Sprint("LOCAL_WORLD_SIZE=", p.size),
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT=4242",
			"CARILLON_JOB=my-job", "CARILLON_TAPE_DIR=" + tapes,
			fmt.Sprintf("CARILLON_HOSTID=%s-node-%d", host, p.node),
		} {
			want = append(want, fmt.Sprintf("[%d] %s", rank, kv))
		}
	}
	got := slices.DeleteFunc(j.rest(), func(line string) bool {
		return strings.Contains(line, "CARILLON_JOB_SECRET_FILE=")
	})
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("environment (-want +got):\n%s", d)
	}
	if _, err := os.Stat(tapes); err != nil {
		t.Error(err)
	}
}

// TestSecretIsInAFile: each start of the ranks has a secret file of the user's, which is removed afterwards.
func TestSecretIsInAFile(t *testing.T) {
	j := begin(t, "secret", Config{Ranks: 2, Secret: secret, MaxRestarts: 1})
	if code := j.end().ExitCode(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	paths := map[string]bool{}
	for _, line := range j.rest() {
		_, path, ok := strings.Cut(line, "-rw------- "+secret+" ")
		if !ok || !filepath.IsAbs(path) {
			t.Fatalf("a rank says %q", line)
		}
		paths[path] = true
	}
	if len(paths) != 2 {
		t.Errorf("the ranks, started twice, had the files %v", paths)
	}
	for path := range paths {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestSecondHostGoesOnCounting(t *testing.T) {
	j := begin(t, "env", Config{Ranks: 2, Hosts: 3, Host: 2, MasterAddr: "10.0.0.1", MasterPort: 29500, Secret: secret})
	j.end()
	lines := j.rest()
	for _, want := range []string{
		"[4] RANK=4", "[5] RANK=5", "[5] WORLD_SIZE=6", "[5] LOCAL_RANK=1",
		"[4] LOCAL_WORLD_SIZE=2", "[4] MASTER_ADDR=10.0.0.1",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q in %q", want, lines)
		}
	}
}

func TestJobNameIsTheSameOnAllHosts(t *testing.T) {
	name := func(host int, secret string) string {
		c := Config{
			Program: []string{"/some path/my.prog"}, MasterAddr: "10.0.0.1", MasterPort: 1, Host: host,
			Secret: secret,
		}
		if err := c.complete(); err != nil {
			t.Fatal(err)
		}
		return c.Name
	}
	if a, b := name(0, "x"), name(1, "x"); a != b || !nameRule.MatchString(a) || !strings.HasPrefix(a, "my_prog-") {
		t.Errorf("names %q and %q", a, b)
	}
	if a, b := name(0, "x"), name(0, "y"); a == b {
		t.Errorf("two jobs have the name %q", a)
	}
}

func TestKilledRankIsNamedAndTheOthersEndByThemselves(t *testing.T) {
	j := begin(t, "signals", Config{Ranks: 4, Linger: time.Hour, Grace: time.Hour})
	pids := j.ready(4)
	if err := unix.Kill(pids[2], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, pids[2])
	j.signals <- syscall.SIGUSR1 // the others notice

	r := j.end()
	if r.ExitCode() != 128+9 || r.First.Rank != 2 || r.First.PID != pids[2] {
		t.Errorf("exit code %d, first %+v", r.ExitCode(), r.First)
	}
	want := fmt.Sprintf("carillon: rank 2 (pid %d) was killed by SIGKILL after %s; ranks 0, 1 and 3 exited with 1\n",
		pids[2], words.Round(r.First.After))
	if !strings.HasSuffix(j.stderr.String(), want) {
		t.Errorf("stderr %q, want its end %q", j.stderr, want)
	}
}

func TestJobGoesOnWithEnoughRanks(t *testing.T) {
	// Without a linger time, the other ranks would be ended at once.
	j := begin(t, "signals", Config{Ranks: 4, MinRanks: 2, Grace: time.Hour, Quiet: true})
	pids := j.ready(4)
	for _, rank := range []int{2, 0} {
		if err := unix.Kill(pids[rank], unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, pids[rank])
	}
	j.signals <- syscall.SIGALRM // the others end well
	r := j.end()
	var lost []int
	for _, o := range r.Lost {
		lost = append(lost, o.Rank)
	}
	slices.Sort(lost) // they may have been found dead at the same time
	if r.ExitCode() != 0 || r.First != nil || !slices.Equal(lost, []int{0, 2}) {
		t.Errorf("exit code %d, first %+v, lost %v", r.ExitCode(), r.First, lost)
	}
	for _, want := range []string{
		fmt.Sprintf("carillon: rank 0 (pid %d) was killed by SIGKILL after ",
			pids[0]), "ranks 1 and 3 ended well", "was lost: killed by SIGKILL",
	} {
		if !strings.Contains(j.stderr.String(), want) {
			t.Errorf("%q says not %q", j.stderr, want)
		}
	}
}

func TestRanksThatDoNotEndAreEnded(t *testing.T) {
	j := begin(t, "stubborn", Config{Ranks: 3, Linger: time.Millisecond, Grace: time.Millisecond})
	pids := j.ready(3)
	if err := unix.Kill(pids[1], unix.SIGABRT); err != nil {
		t.Fatal(err)
	}
	r := j.end()
	if r.First == nil || r.First.Rank != 1 {
		t.Errorf("first %+v", r.First)
	}
	if got := r.Outcomes[0]; got.Signal != unix.SIGKILL || got.Asked != unix.SIGKILL {
		t.Errorf("rank 0: %+v", got)
	}
	if want := "ranks 0 and 2 were ended by the launcher's SIGKILL"; !strings.Contains(r.String(), want) {
		t.Errorf("%q says not %q", r, want)
	}
}

func TestStoppedRankCanBeAskedToEnd(t *testing.T) {
	j := begin(t, "signals", Config{Ranks: 2, Grace: time.Hour})
	pids := j.ready(2)
	if err := unix.Kill(pids[0], unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pids[1], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r := j.end()
	if got := r.Outcomes[0]; got.Code != 3 || got.Asked != unix.SIGTERM {
		t.Errorf("rank 0: %+v", got)
	}
	if want := "rank 0 exited with 3 on the launcher's SIGTERM"; !strings.HasSuffix(r.String(), want) {
		t.Errorf("%q says not %q", r, want)
	}
}

func TestSignalsGoOn(t *testing.T) {
	j := begin(t, "signals", Config{Ranks: 2, Grace: time.Hour})
	j.ready(2)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR2, syscall.SIGQUIT} {
		j.signals <- sig
		name := unix.SignalName(sig)
		j.await("[0] got "+name, "[1] got "+name)
	}
	j.signals <- syscall.SIGINT
	r := j.end()
	if r.ExitCode() != 3 ||
		!strings.HasPrefix(r.String(), "ranks 0 and 1 exited with 3 on the launcher's SIGINT after ") {
		t.Errorf("exit code %d: %s", r.ExitCode(), r)
	}
}

func TestSecondInterruptKills(t *testing.T) {
	j := begin(t, "stubborn", Config{Ranks: 2, Grace: time.Hour})
	j.ready(2)
	j.signals <- syscall.SIGINT
	j.signals <- syscall.SIGINT
	r := j.end()
	if r.ExitCode() != 128+9 || !strings.HasPrefix(r.String(),
		"ranks 0 and 1 were ended by the launcher's SIGKILL after ") {
		t.Errorf("exit code %d: %s", r.ExitCode(), r)
	}
}

func TestChildrenEndWithTheirRank(t *testing.T) {
	for _, program := range []string{"parent", "stubbornparent"} {
		t.Run(program, func(t *testing.T) {
			j := begin(t, program, Config{Grace: time.Millisecond})
			child := number(t, j.await("[0] child ready ")[0])
			if r := j.end(); r.ExitCode() != 0 {
				t.Errorf("exit code %d: %s", r.ExitCode(), r)
			}
			awaitEnd(t, child)
		})
	}
}

func TestOutputDoesNotWaitForAStranger(t *testing.T) {
	began := time.Now()
	j := begin(t, "stranger", Config{})
	pid := number(t, j.await("[0] stranger ")[0])
	defer func() { _ = unix.Kill(pid, unix.SIGKILL) }()
	r := j.end()
	if took := time.Since(began); r.ExitCode() != 0 || took > 30*time.Second ||
		!strings.Contains(j.stderr.String(), "[0] last words\n") {
		t.Errorf("%s, after %s; showed %q", r, took, j.stderr)
	}
}

func TestInterruptReachesChildrenLeftBehind(t *testing.T) {
	j := begin(t, "stubbornparent", Config{Grace: time.Hour})
	child := number(t, j.await("[0] child ready ")[0])
	j.signals <- syscall.SIGINT
	j.signals <- syscall.SIGINT
	j.end()
	awaitEnd(t, child)
}

func TestUnfinishedLineShows(t *testing.T) {
	j := begin(t, "half", Config{})
	var seen string
	for text := range j.partial {
		if seen += text; seen == "[0] half a line" {
			break
		}
	}
	j.signals <- syscall.SIGINT
	j.end()
	if got := j.rest(); len(got) != 1 || got[0] != "[0] half a line" {
		t.Errorf("in the end: %q", got)
	}
}

func TestLinesStayWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	j := begin(t, "lines", Config{Ranks: 4, TeeDir: dir})
	j.end()
	next := make([]int, 4)
	for _, line := range j.rest() {
		var prefix, n, rank int
		if _, err := fmt.Sscanf(line, "[%d] line %d of rank %d", &prefix, &n, &rank); err != nil {
			// A slow machine shows a line in two pieces, each with its prefix.
			continue
		}
		if prefix != rank || n < next[rank] {
			t.Fatalf("line %q after line %d of rank %d", line, next[rank], rank)
		}
		next[rank] = n + 1
	}
	for rank := range 4 {
		var want strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&want, "line %d of rank %d\n", i, rank)
		}
		got, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("rank-%d.log", rank)))
		if err != nil || string(got) != want.String() {
			t.Errorf("log of rank %d: %d bytes, want %d; %v", rank, len(got), want.Len(), err)
		}
	}
}

func TestClosedOutputEndsTheJob(t *testing.T) {
	j := begin(t, "noise", Config{Ranks: 2, Grace: time.Hour})
	j.await("[0] noise", "[1] noise")
	j.stdout.Close()
	r := j.end()
	if !errors.Is(r.OutputLost, syscall.EPIPE) || r.ExitCode() == 0 {
		t.Errorf("exit code %d, lost %v", r.ExitCode(), r.OutputLost)
	}
	if want := "the job was ended, as its output can't be shown"; !strings.Contains(j.stderr.String(), want) {
		t.Errorf("stderr %q says not %q", j.stderr, want)
	}
}

func TestOnlyRankZeroReads(t *testing.T) {
	r, w := pipe(t)
	if _, err := w.WriteString("typed\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	j := begin(t, "cat", Config{Ranks: 2, Stdin: r})
	j.end()
	got := j.rest()
	slices.Sort(got)
	if want := []string{"[0] read 6 <nil>", "[0] typed", "[1] read 0 <nil>"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProgramThatCanNotRun(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("\x7fELF and nothing more"), 0o700); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]error{
		"no-such-program":   exec.ErrNotFound,
		"./no-such-program": fs.ErrNotExist,
		"/dev/null":         fs.ErrPermission,
		broken:              syscall.ENOEXEC,
	} {
		cfg := Config{Program: []string{program}, Ranks: 2, Stdout: os.Stdout, Stderr: os.Stderr}
		if r, err := Run(t.Context(), cfg); !errors.Is(err, want) || r != nil {
			t.Errorf("%s: %v, %v; want %v", program, r, err, want)
		}
	}
}

func TestReservedPortIsKeptForTheJob(t *testing.T) {
	var cfg Config
	number, err := cfg.reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer cfg.release()
	for _, addr := range []string{"127.0.0.1", ""} {
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", addr, number))
		if err != nil {
			t.Fatalf("a rank can't listen: %v", err)
		}
		l.Close()
	}
	// No process that wants any port gets this one: a second bind without address reuse is refused.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, addr := range [][4]byte{{}, {127, 0, 0, 1}, {127, 0, 0, 2}} {
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: addr, Port: number}); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("a stranger's bind to %v: %v", addr, err)
		}
	}
}

func TestVerboseNamesEveryRank(t *testing.T) {
	j := begin(t, "env", Config{Ranks: 2, Nodes: 2, Name: "j", MasterPort: 1, Verbose: true})
	r := j.end()
	a, b := r.Outcomes[0].PID, r.Outcomes[1].PID
	for _, want := range []string{
		"carillon: job j: ranks 0 and 1 on 2 simulated nodes up in ",
		fmt.Sprintf("(pid %d and %d), meeting at 127.0.0.1:1\n",
			a, b),
		fmt.Sprintf("carillon: rank 1: pid %d, node 1, local rank 0 of 1\n", b),
		"carillon: ranks 0 and 1 ended well after ",
	} {
		if !strings.Contains(j.stderr.String(), want) {
			t.Errorf("stderr %q says not %q", j.stderr, want)
		}
	}
	if j := begin(t, "env", Config{Ranks: 2, Quiet: true}); j.end() != nil && j.stderr.Len() > 0 {
		t.Errorf("quiet says %q", j.stderr)
	}
}

func TestRankThatFailsByItselfGivesItsCode(t *testing.T) {
	if r := begin(t, "fail", Config{Ranks: 1}).end(); r.ExitCode() != 5 {
		t.Errorf("exit code %d: %s", r.ExitCode(), r)
	}
}
