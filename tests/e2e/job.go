package e2e

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// limit is how long a job may take unless StartFor sets another limit. A test that needs more hangs. The limit is well
// below that of a package, which would end the test without the job's output.
const limit = 4 * time.Minute

// Job is one running command, usually carillon run, with its output.
type Job struct {
	t   *testing.T
	cmd *exec.Cmd

	mu     sync.Mutex
	more   sync.Cond // signalled when output has arrived or ended
	output strings.Builder
	ended  bool // no more output will come

	exited chan struct{}
}

// Start starts a command in the PATH. The command is killed at the end of the test if it is still running; a failing
// test shows its output. env is added to the test's environment.
func Start(t *testing.T, env []string, name string, args ...string) *Job {
	t.Helper()
	return StartFor(t, limit, env, name, args...)
}

// StartFor is Start with another time limit.
func StartFor(t *testing.T, limit time.Duration, env []string, name string, args ...string) *Job {
	t.Helper()
	j := &Job{t: t, exited: make(chan struct{})}
	j.more.L = &j.mu
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	j.cmd = exec.CommandContext(ctx, name, args...)
	j.cmd.Env = append(os.Environ(), env...)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	j.cmd.Stdout, j.cmd.Stderr = write, write
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	go j.read(read)
	go func() {
		defer close(j.exited)
		_ = j.cmd.Wait() // the state says how it ended
	}()
	// After the limit the output ends, even if a descendant of the killed command still holds the pipe.
	context.AfterFunc(ctx, func() { _ = read.SetReadDeadline(time.Now()) }) // fails if it has ended already
	t.Cleanup(func() {
		cancel()
		<-j.exited
		if t.Failed() {
			t.Logf("%s printed:\n%s", j.cmd, j.Output())
		}
	})
	return j
}

// read collects the output, a line at a time.
func (j *Job) read(from *os.File) {
	defer from.Close()
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		j.mu.Lock()
		j.output.WriteString(line)
		j.ended = err != nil
		j.mu.Unlock()
		j.more.Broadcast()
		if err != nil {
			return
		}
	}
}

// Output returns all lines that the job printed so far, on both streams.
func (j *Job) Output() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.output.String()
}

// Await waits until the output matches a regular expression, and returns the match and its groups. If the output ends
// without a match, the test fails.
func (j *Job) Await(expr string) []string {
	j.t.Helper()
	re := regexp.MustCompile("(?m)" + expr)
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		if m := re.FindStringSubmatch(j.output.String()); m != nil {
			return m
		}
		if j.ended {
			j.t.Fatalf("the job ended without printing %s", expr)
		}
		j.more.Wait()
	}
}

// AwaitPID is Await for an expression whose first group is a process id; it returns the id.
func (j *Job) AwaitPID(expr string) int {
	j.t.Helper()
	pid, err := strconv.Atoi(j.Await(expr)[1])
	if err != nil {
		j.t.Fatal(err)
	}
	return pid
}

// Signal sends a signal to the command.
func (j *Job) Signal(sig syscall.Signal) {
	j.t.Helper()
	if err := j.cmd.Process.Signal(sig); err != nil {
		j.t.Fatal(err)
	}
}

// ExitCode waits for the end of the command and of its output, and returns its exit code, or 128 plus the signal that
// ended it.
func (j *Job) ExitCode() int {
	j.t.Helper()
	<-j.exited
	j.mu.Lock()
	for !j.ended {
		j.more.Wait()
	}
	j.mu.Unlock()
	status := j.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// Kill sends a signal to any process.
func Kill(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("send %s to process %d: %v", unix.SignalName(sig), pid, err)
	}
}

// AwaitEnd waits until a process, which need not be a child, has ended. After a timeout, it fails the test.
func AwaitEnd(t *testing.T, pid int) {
	t.Helper()
	ended := make(chan struct{})
	stop, err := process.ID{PID: pid}.Watch(func(process.Exit) { close(ended) })
	if err != nil { // it has ended
		return
	}
	defer stop()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Errorf("process %d has not ended", pid)
	}
}
