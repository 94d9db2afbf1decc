package digits

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/runtime/cuda/fakecuda"
	"github.com/carillon-rt/carillon/tests/e2e"
)

// build makes the fake driver and its kernels, once; TestMain removes its folder.
var build = sync.OnceValues(func() (kernels string, err error) {
	if _, err = fakecuda.Build(drivers); err != nil {
		return "", err
	}
	return fakecuda.BuildKernels(drivers, filepath.Join("..", "..", "kernels", "cuda", "*.cu"))
})

// gpus returns variables with which a process sees n GPUs.
func gpus(t *testing.T, n int) []string {
	t.Helper()
	kernels, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		fmt.Sprint("FAKECUDA_DEVICES=", n), "FAKECUDA_KERNELS=" + kernels, "LD_LIBRARY_PATH=" + drivers,
	}
}

// TestSameWeightsOnGPUs: sums on GPUs equal those on the host, bit for bit.
func TestSameWeightsOnGPUs(t *testing.T) {
	const n = 3
	dir := t.TempDir()
	host, gpu := filepath.Join(dir, "host"), filepath.Join(dir, "gpu")
	onHost := job(t, n, nil, nil, "-epochs", "1", "-weights", host)
	onGPU := job(t, n, gpus(t, n), nil, "-gpu", "-epochs", "1", "-weights", gpu)
	if a, b := onHost.ExitCode(), onGPU.ExitCode(); a != 0 || b != 0 {
		t.Fatalf("exit codes %d and %d", a, b)
	}
	if w := weights(t, gpu); len(w) == 0 || !slices.Equal(w, weights(t, host)) {
		t.Error("the weights are others than those without -gpu")
	}
}

// TestFailingGPU: the sums are made on the GPU, so a job whose GPU fails in the middle ends, and says why.
func TestFailingGPU(t *testing.T) {
	j := job(t, 2, append(gpus(t, 2), "FAKECUDA_FAIL=cuLaunchKernel:719:20"), nil, "-gpu", "-epochs", "3")
	if code := j.ExitCode(); code == 0 || !strings.Contains(j.Output(), "CUDA_ERROR_LAUNCH_FAILED") {
		t.Errorf("exit code %d, and no rank says that its GPU failed", code)
	}
}

func TestKilledRankOnAGPUIsNamed(t *testing.T) {
	const n = 3
	tapes := t.TempDir()
	flags := []string{"-v", "--linger", "1h", "--tape-dir", tapes}
	j := job(t, n, gpus(t, n), flags, "-gpu", "-epochs", "1000000")
	pid := j.AwaitPID(`^carillon: rank 1: pid (\d+)`)
	j.Await(`^\[0\] epoch +1 of`)
	e2e.Kill(t, pid, syscall.SIGKILL)
	if code := j.ExitCode(); code != 128+9 {
		t.Errorf("exit code %d, want %d", code, 128+9)
	}
	for rank := range n {
		said := regexp.MustCompile(fmt.Sprintf(`(?m)^\[%d\] digits: .*`, rank)).FindString(j.Output())
		if rank != 1 && !strings.Contains(said, `the process of rank 1 of "world" has ended`) {
			t.Errorf("rank %d does not say that rank 1 is dead: %q", rank, said)
		}
	}
	out, err := exec.Command("carillon", "postmortem", "--json", tapes).Output()
	var report struct {
		Findings []struct {
			Reason   string
			Culprits []struct{ Rank, PID int }
		}
	}
	if err := errors.Join(err, json.Unmarshal(out, &report)); err != nil {
		t.Fatal(err)
	}
	if f := report.Findings; len(f) != 1 || f[0].Reason != "rank_dead" || len(f[0].Culprits) != 1 ||
		f[0].Culprits[0].Rank != 1 || f[0].Culprits[0].PID != pid {
		t.Errorf("the verdict is %+v, want rank 1, pid %d, dead", f, pid)
	}
}

// TestNoDriver: the empty file is found before any driver of the machine.
func TestNoDriver(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "libcuda.so.1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j := e2e.Start(t, []string{"LD_LIBRARY_PATH=" + dir}, "digits", "-gpu")
	if code := j.ExitCode(); code != 1 || !strings.Contains(j.Output(), "digits: the GPU of rank 0: ") ||
		!strings.Contains(j.Output(), "it comes with NVIDIA's driver") {
		t.Errorf("exit code %d, and the error does not say that there is no driver", code)
	}
}
