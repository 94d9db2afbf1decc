package run

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// job is the command of a job of 4 ranks that trains for a moment.
const job = `carillon run -q -n 4 -- digits -epochs 1`

// inContainer runs a shell script with a /dev like that of a container; mounts are made first, in a separate namespace.
func inContainer(t *testing.T, mounts, script string, env ...string) *e2e.Job {
	t.Helper()
	return e2e.Start(t, append([]string{"TMPDIR=" + t.TempDir(), "CARILLON_TAPE_DIR=", "CARILLON_TAPE_KEEP="}, env...),
		"unshare", "--mount", "sh", "-ec", mounts+"\n"+script)
}

const small = `mount -t tmpfs -o size=64m tmpfs /dev/shm`

// lines returns the log lines that are warnings or worse.
func lines(j *e2e.Job) []string {
	return regexp.MustCompile(`.*level=(WARN|ERROR).*`).FindAllString(j.Output(), -1)
}

// Twenty jobs in a container, whose /dev/shm has 64 MiB: all run without a warning, room is left for the program, and
// the post-mortem of the last job has all its ranks.
func TestTwentyJobsInASmallContainer(t *testing.T) {
	j := inContainer(t, small, `for i in $(seq 20); do `+job+` >/dev/null; done
		echo free $(df --output=avail --block-size=1M /dev/shm | tail -n 1)
		carillon postmortem | grep -E '^job'`)
	check(t, j, 0, ": 4 tapes on 1 host: 4 closed")
	var free int
	if _, err := fmt.Sscan(j.Await(`^free (\d+)`)[1], &free); err != nil || free < 24 {
		t.Errorf("%d MiB of 64 are left in /dev/shm", free)
	}
	if said := lines(j); len(said) > 0 {
		t.Errorf("where nothing is wrong, they say %q", said)
	}
}

// The same for runs with only the environment, for which nobody removes tapes but the ranks themselves.
func TestPlainRunsInASmallContainer(t *testing.T) {
	j := inContainer(t, small, `for i in $(seq 20); do
			export CARILLON_JOB=plain-$i CARILLON_WORLD_SIZE=2 CARILLON_LOCAL_WORLD_SIZE=2
			export CARILLON_ADDRESS=127.0.0.1:29517 CARILLON_JOB_SECRET=0123456789abcdef0123456789abcdef
			CARILLON_RANK=0 CARILLON_LOCAL_RANK=0 digits -epochs 1 >/dev/null & other=$!
			CARILLON_RANK=1 CARILLON_LOCAL_RANK=1 digits -epochs 1 >/dev/null; wait $other
		done; echo jobs $(ls -d /dev/shm/carillon-*/*/*.tape | wc -l)`)
	check(t, j, 0)
	var tapes int
	if _, err := fmt.Sscan(j.Await(`^jobs (\d+)`)[1], &tapes); err != nil || tapes < 2 || tapes > 10 {
		t.Errorf("%d tapes are left", tapes)
	}
	if said := lines(j); len(said) > 0 {
		t.Errorf("where nothing is wrong, they say %q", said)
	}
}

// If there is no room or no place for tapes, a job runs with tapes elsewhere or without any, and each rank says so in
// one line.
func TestNoPlaceForTapes(t *testing.T) {
	const nowhere = `mount -t tmpfs -o ro none /dev/shm; mount -t tmpfs -o ro none $TMPDIR; `
	for name, c := range map[string]struct{ mounts, said string }{
		"full": {
			small + `; dd if=/dev/zero of=/dev/shm/mine bs=1M status=none || true`, `has no room: 0 B free`,
		},
		"read-only": {`mount -t tmpfs -o ro none /dev/shm`, `read-only file system`},
		"somebody else's": {
			small + `; mkdir -m 700 /dev/shm/carillon-0; chown 4711 /dev/shm/carillon-0`, `belongs to user 4711`,
		},
		"no files": {`mount -t tmpfs -o nr_inodes=2 none /dev/shm`, `no space left on device`},
		"nowhere":  {nowhere, `there is no tape: the process runs, .* read-only file system`},
		"no /proc": {
			`mount -t tmpfs none /proc`, `RAS does not see whether processes of this host have stopped`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := inContainer(t, c.mounts, job)
			check(t, j, 0)
			said := lines(j)
			if len(said) != 4 {
				t.Errorf("4 ranks say %d lines: %q", len(said), said)
			}
			for _, line := range said {
				if !regexp.MustCompile(c.said).MatchString(line) {
					t.Errorf("want %s, got %s", c.said, line)
				}
			}
		})
	}
	// There is no place for the secret file either.
	check(t, inContainer(t, nowhere, job), 0,
		"carillon: the job's secret is in the environment of its ranks, as no file can be made for it: ")
	t.Run("required", func(t *testing.T) {
		j := inContainer(t, `mount -t tmpfs -o ro none /dev/shm`, job, "CARILLON_TAPE=required")
		check(t, j, 1, "read-only file system", "CARILLON_TAPE=on does with less, or without")
	})
}

// A job whose tapes had to go elsewhere is found there.
func TestTapesElsewhereAreFound(t *testing.T) {
	j := inContainer(t, `mount -t tmpfs -o ro none /dev/shm`,
		`carillon run -q -n 2 --job moved -- hang -for 1h -missing 1 >/dev/null & launcher=$!
		until carillon status moved 2>&1 | grep 'not_entered (certain)'; do :; done
		carillon status || true; kill $launcher; wait $launcher || true; carillon postmortem moved`)
	check(t, j, 0, "job moved: CRITICAL", "2 tapes on 1 host", "has not entered all_reduce")
}
