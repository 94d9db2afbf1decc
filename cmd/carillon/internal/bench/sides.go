package bench

import (
	"bufio"
	"bytes"
	"context"
	_ "embed" // the program for Open MPI
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/runtime/node"
)

func inProcess(ctx context.Context, s Setup, ranks, size int) (Result, error) {
	countAllocations()
	n, err := node.Start(ctx, node.FromEnv(), node.WithHealth(""), node.WithLog(slog.New(slog.DiscardHandler)))
	if err != nil {
		return Result{}, err
	}
	defer n.Stop(context.WithoutCancel(ctx)) //nolint:errcheck // the measurement is done
	comms, err := n.Runtime().InitAll(ctx, ranks)
	if err != nil {
		return Result{}, err
	}
	results, errs := make([]Result, ranks), make([]error, ranks)
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			results[r], errs[r] = measure(ctx, c, s, size)
			errs[r] = errors.Join(errs[r], c.Close())
		})
	}
	wg.Wait()
	results[0].Mode = "in-process"
	results[0].Allocs /= float64(ranks) // all ranks share one heap
	return results[0], errors.Join(errs...)
}

// Worker is the part of processes that runs in each of them: it joins the world that the environment describes and
// measures. Rank 0 writes the result to out.
func Worker(ctx context.Context, s Setup, out *os.File) error {
	countAllocations()
	n, err := node.Start(ctx, node.FromEnv(), node.WithHealth(""))
	if err != nil {
		return err
	}
	defer n.Stop(context.WithoutCancel(ctx)) //nolint:errcheck // the measurement is done
	comm, err := n.Runtime().World(ctx)
	if err != nil {
		return err
	}
	defer comm.Close() //nolint:errcheck // the measurement is done
	for _, size := range s.Sizes {
		r, err := measure(ctx, comm, s, size)
		if err != nil {
			return err
		}
		if comm.Rank() == 0 {
			r.Mode = "processes"
			if err := json.NewEncoder(out).Encode(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// WorkerCommand is this program's command that runs a Worker. Its argument is a Setup, as JSON.
const WorkerCommand = "bench-worker"

// processes measures ranks that are processes of this host: copies of this program that run Worker, under its own
// launcher.
func processes(ctx context.Context, self string, s Setup, ranks, size int) (Result, error) {
	s.Sizes = []int{size}
	setup, err := json.Marshal(s)
	if err != nil {
		return Result{}, err
	}
	args := []string{"run", "-n", strconv.Itoa(ranks), "--", self, WorkerCommand, string(setup)}
	lines, err := output(ctx, self, args)
	if err != nil {
		return Result{}, err
	}
	_, text, _ := strings.Cut(lines, "{") // after the launcher's prefix
	var r Result
	if err := json.NewDecoder(strings.NewReader("{" + text)).Decode(&r); err != nil {
		return Result{}, fmt.Errorf("result of %d processes: %w: %s", ranks, err, lines)
	}
	return r, nil
}

//go:embed openmpi/allreduce.c
var mpiSource []byte

// openMPI is the path of the compiled program for Open MPI; empty if it can't be measured.
type openMPI string

// newOpenMPI compiles the program for Open MPI in dir. why is the reason if that isn't possible.
func newOpenMPI(ctx context.Context, dir string) (m openMPI, why string) {
	for _, tool := range []string{"mpirun", "mpicc"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", tool + " is not installed (Debian: openmpi-bin libopenmpi-dev)"
		}
	}
	source, program := filepath.Join(dir, "allreduce_mpi.c"), filepath.Join(dir, "allreduce_mpi")
	if err := os.WriteFile(source, mpiSource, 0o600); err != nil {
		return "", err.Error()
	}
	if _, err := output(ctx, "mpicc", []string{"-O2", "-o", program, source}); err != nil {
		return "", "the program for Open MPI does not compile: " + err.Error()
	}
	return openMPI(program), ""
}

func (m openMPI) measure(ctx context.Context, s Setup, ranks, size int) (Result, error) {
	args := []string{
		"--allow-run-as-root", "--oversubscribe", "-n", strconv.Itoa(ranks), string(m),
		strconv.Itoa(size), strconv.FormatFloat(s.Budget.Seconds(), 'f', -1, 64), strconv.Itoa(s.Min),
		strconv.Itoa(s.Max),
	}
	text, err := output(ctx, "mpirun", args)
	if err != nil {
		return Result{}, err
	}
	var iters int
	var seconds float64
	if _, err := fmt.Sscanf(text, "%d %g", &iters, &seconds); err != nil {
		return Result{}, fmt.Errorf("result of Open MPI: %w: %s", err, text)
	}
	return Result{
		Side: "openmpi", Mode: "processes", Ranks: ranks, Bytes: size, Iters: iters,
		Latency: time.Duration(seconds * 1e9), Allocs: -1,
	}, nil
}

// endTime is how long a program may take to end after SIGTERM.
const endTime = 5 * time.Second

// output runs a program and returns what it prints. Only the end of ctx ends the program, not a ^C on the terminal.
func output(ctx context.Context, name string, args []string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endTime
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok &&
			exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGINT {
			return "", context.Canceled // it was not in a group of its own yet
		}
		last := ""
		for sc := bufio.NewScanner(&stderr); sc.Scan(); {
			last = sc.Text()
		}
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(name), err, last)
	}
	return stdout.String(), nil
}
