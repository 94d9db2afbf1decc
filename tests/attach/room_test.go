package attach

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// player builds a program that makes a tape with the writer in C, and plays the script that it reads onto it.
func player(t *testing.T) string {
	t.Helper()
	writer, err := filepath.Glob("../../runtime/attach/tape*.c")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "player")
	args := []string{"-std=c11", "-D_GNU_SOURCE", "-o", program, "../../runtime/attach/testdata/player.c"}
	if out, err := exec.CommandContext(t.Context(), "cc", append(args, writer...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

const world = "echo comm 1 0102030405060708090a0b0c0d0e0f10 00000000000000000000000000000000 w 0 1 1 nccl 0 | "

// Tests what libcarillon-nccl.so does on a file system with little room for its tape: it makes a tape as large as there
// is room for, or none, and a line says why. It never harms its process.
func TestRoomForTape(t *testing.T) {
	program := player(t)
	// The player's tape is smaller than others: all of its parts but the tallies have set sizes.
	for name, c := range map[string]struct{ mount, says, tape string }{
		"room":       {"size=64m", "", "585728"},
		"less room":  {"size=4m", "it has 124 KiB instead of 572 KiB, as ", "126976"},
		"no room":    {"size=128k", "has no room for a tape: No space left on device", ""},
		"no files":   {"size=64m,nr_inodes=3", "No space left on device", ""},
		"read-only":  {"ro", "can't be created: Read-only file system", ""},
		"of another": {"uid=12345", "belongs to user 12345, and this process runs as user 0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-ec", `
				mount -t tmpfs -o mode=700,`+c.mount+` none `+dir+`
				`+world+`TAPETEST_DIR=`+dir+` `+program+`
				find `+dir+` -type f -printf '%s\n'`)
			var says strings.Builder
			cmd.Stderr = &says
			sizes, err := cmd.Output()
			if err != nil || strings.TrimSpace(string(sizes)) != c.tape || !strings.Contains(says.String(), c.says) ||
				strings.Count(says.String(), "\n") != min(len(c.says), 1) {
				t.Errorf("%v; its files have %q bytes, want %s; it says %q, want %q", err, sizes, c.tape, &says, c.says)
			}
		})
	}
}

// If the first directory can't be used, the tape is in the next one, and a line says why.
func TestTapeElsewhere(t *testing.T) {
	t.Parallel()
	program := player(t)
	const memory = `mount -t tmpfs none /dev/shm; `
	for name, c := range map[string]struct{ mounts, tape, says string }{
		"in memory": {memory, "/dev/shm/carillon-0/train", `the tape is in another directory, /dev/shm/carillon-0: `},
		"without memory": {
			`mount -t tmpfs -o ro none /dev/shm; `, "$TMPDIR/carillon-0/train",
			`/dev/shm/carillon-0 can't be created: Read-only file system`,
		},
		"smaller": {
			`mount -t tmpfs -o size=4m none /dev/shm; `, "/dev/shm/carillon-0/train",
			`; it has 124 KiB instead of 572 KiB, as /dev/shm/carillon-0 has `,
		},
		"no directory but memory": {
			memory + `export CARILLON_TAPE_DIR=; `, "/dev/shm/carillon-0/train", "",
		},
		"nowhere": {
			`mount -t tmpfs -o ro none /dev/shm; mount -t tmpfs -o ro none $TMPDIR; `, "",
			`no tape, and so nothing shows what the communicators of this process do`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			first, temporary := t.TempDir(), t.TempDir()
			cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-ec",
				`mount -t tmpfs -o ro,mode=700 none $CARILLON_TAPE_DIR; `+c.mounts+world+program+`
				echo tapes $(find /dev/shm $TMPDIR -name '*.tape' -printf '%h ')
				echo want `+c.tape)
			cmd.Env = append(os.Environ(), "CARILLON_TAPE_DIR="+first, "TMPDIR="+temporary, "CARILLON_JOB=train")
			var says strings.Builder
			cmd.Stderr = &says
			printed, err := cmd.Output()
			tapes, want, _ := strings.Cut(strings.TrimSpace(string(printed)), "\n")
			if err != nil || strings.TrimPrefix(tapes, "tapes") != strings.TrimPrefix(want, "want") ||
				!strings.Contains(says.String(), c.says) || strings.Count(says.String(), "\n") != min(len(c.says), 1) ||
				c.says != "" && !strings.Contains(says.String(), first+"/train can't be created: Read-only") {
				t.Errorf("%v\n%s\nit says %q, want %q", err, printed, &says, c.says)
			}
		})
	}
}

// An agent follows the jobs of its directory, even if that has no room for their tapes. It doesn't follow other jobs of
// the directory that has the tapes then.
func TestAgentFollowsElsewhere(t *testing.T) {
	t.Parallel()
	tapes, temporary := t.TempDir(), t.TempDir()
	holder := e2e.Start(t, nil, "unshare", "--mount", "sh", "-ec",
		"mount -t tmpfs -o size=128k,mode=700 none "+tapes+`; mount -t tmpfs none /dev/shm; echo made $$
		exec sleep infinity`)
	inside := []string{"--mount", "--target", fmt.Sprint(holder.AwaitPID(`^made (\d+)$`)), "--"}
	start := func(env []string, args ...string) *e2e.Job {
		return e2e.Start(t, append(env, "TMPDIR="+temporary), "nsenter", slices.Concat(inside, args)...)
	}
	agent := start([]string{"CARILLON_HEALTH_ADDR=off", "OTEL_TRACES_EXPORTER=console"}, "carillon", "agent",
		"--tape-dir", tapes)
	library := buildLibrary(t)
	run := func(job, dir string) {
		t.Helper()
		traffic := start([]string{
			"LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "LD_PRELOAD=" + library,
			"NCCL_PROFILER_PLUGIN=" + library, "CARILLON_JOB=" + job, "CARILLON_TAPE_DIR=" + dir,
		}, fakenccl.Program(t, built, "traffic"), "processes", "2")
		if code := traffic.ExitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	run("another", "/dev/shm/carillon-0")
	run("elsewhere", tapes)
	agent.Await(`"Name":"ccl.comm.destroy".*"Value":"elsewhere"`)
	agent.Signal(syscall.SIGTERM)
	if code := agent.ExitCode(); code != 0 || strings.Contains(agent.Output(), `"Value":"another"`) {
		t.Errorf("exit code %d; it follows\n%s", code, agent.Output())
	}
}

// Jobs of programs that remove no tapes run one after the other with room for only a few: attach makes room for each,
// in the next directory if memory can't be used, and keeps the tapes of the last job for its post-mortem.
func TestAttachMakesRoom(t *testing.T) {
	t.Parallel()
	temporary := t.TempDir()
	env := slices.Concat(none, []string{
		"CARILLON_NCCL_LIBRARY=" + buildLibrary(t), "CARILLON_TAPE_KEEP=", "TMPDIR=" + temporary,
	})
	run := func(mounts string, jobs int) string {
		job := e2e.Start(t, env, "unshare", "--mount", "sh", "-ec", fmt.Sprintf(`%s
			for i in $(seq %d); do carillon attach --job j$i -- sh -c '%s%s'; done
			find /dev/shm $TMPDIR -name '*.tape' -printf 'left %%h %%s\n'`, mounts, jobs, world, player(t)))
		if code := job.ExitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		return job.Output()
	}
	if said := run(`mount -t tmpfs -o size=8m none /dev/shm`, 9); strings.Contains(said, "carillon: ") ||
		!strings.Contains(said, "carillon-0/j9 585728") ||
		!strings.Contains(said, "carillon-0/j8 ") || strings.Contains(said, "carillon-0/j1 ") {
		t.Errorf("where room can be made, they say\n%s", said)
	}
	if said := run(`mount -t tmpfs -o ro none /dev/shm`, 1); !strings.Contains(said, "left "+temporary) ||
		!strings.Contains(said, "tapes are in another directory") || strings.Count(said, "carillon: ") != 1 {
		t.Errorf("where memory doesn't serve, it says\n%s", said)
	}
}
