package digits

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// TestForeignLaunchers starts the ranks as other launchers do: with only those launchers' variables, and none of
// Carillon's.
func TestForeignLaunchers(t *testing.T) {
	const size = 3
	for name, env := range map[string]func(rank int) []string{
		"mpiexec of MPICH": func(rank int) []string {
			return []string{
				fmt.Sprint("PMI_RANK=", rank), "PMI_SIZE=3", fmt.Sprint("MPI_LOCALRANKID=", rank), "MPI_LOCALNRANKS=3",
			}
		},
		"an Indexed Job": func(rank int) []string {
			return []string{
				fmt.Sprint("HOSTNAME=train-", rank), fmt.Sprint("JOB_COMPLETION_INDEX=", rank), "WORLD_SIZE=3",
				"MASTER_ADDR=localhost",
			}
		},
		"PMIx": func(rank int) []string {
			return []string{
				fmt.Sprint("PMIX_RANK=", rank), "PMIX_NAMESPACE=here", "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1",
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			port := "MASTER_PORT=" + e2e.FreePort(t)
			ranks := make([]*e2e.Job, size)
			for rank := range ranks {
				ranks[rank] = e2e.Start(t, append(env(rank), port), "digits", "-epochs", "2")
			}
			for rank, j := range ranks {
				if code := j.ExitCode(); code != 0 {
					t.Errorf("rank %d: exit code %d", rank, code)
				}
			}
			if !strings.Contains(ranks[0].Output(), "3 replicas, bit by bit the same") {
				t.Errorf("rank 0 printed:\n%s", ranks[0].Output())
			}
		})
	}
}

// TestRestart: a rank dies, all ranks start again at the same address, and the job succeeds.
func TestRestart(t *testing.T) {
	j := job(t, 3, nil, []string{"--max-restarts", "1", "--linger", "0s"}, "-epochs", "20")
	e2e.Kill(t, j.AwaitPID(`up in .* \(pid .*?(\d+)\)`), syscall.SIGKILL) // the last pid; they are a list, or a range
	j.Await(`restart 1 of 1`)
	learned(t, j)
}

// TestHalfAPlaceIsNoWorldOfOne: a process that knows its rank or the size, but not both, doesn't run as a world of one.
func TestHalfAPlaceIsNoWorldOfOne(t *testing.T) {
	for half, missing := range map[string]string{
		"PMIX_RANK=1": "WORLD_SIZE is not set", "JOB_COMPLETION_INDEX=1": "WORLD_SIZE is not set",
		"PMI_SIZE=2": "PMI_RANK is not set", "OMPI_COMM_WORLD_SIZE=2": "OMPI_COMM_WORLD_RANK is not set",
	} {
		j := e2e.Start(t, []string{half}, "digits", "-epochs", "1")
		if code := j.ExitCode(); code == 0 || !strings.Contains(j.Output(), missing) {
			t.Errorf("%s: exit code %d, and it printed:\n%s", half, code, j.Output())
		}
	}
}
