package node_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
)

// process is a rank of a job of real processes, which the test binary plays.
type process struct {
	b     *testing.B
	cmd   *exec.Cmd
	lines *bufio.Scanner
	url   string // of its health endpoint; empty if it has none
}

// startProcesses starts a job of processes that play a program, and waits until they work.
func startProcesses(b *testing.B, size int, name, program string, env ...string) []*process {
	b.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(b.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	env = append([]string{
		programEnv + "=" + program, "CARILLON_WORLD_SIZE=" + strconv.Itoa(size), "CARILLON_LOCAL_WORLD_SIZE=" +
			strconv.Itoa(size),
		"CARILLON_ADDRESS=" + address, "CARILLON_JOB=" + name, "CARILLON_JOB_SECRET=0123456789abcdef0123456789abcdef",
		"CARILLON_TAPE_DIR=" + memDir(b), "CARILLON_LOG=off",
	}, env...)
	job := make([]*process, size)
	for rank := range job {
		p := &process{b: b, cmd: exec.Command(os.Args[0])}
		p.cmd.Env = append(append(os.Environ(), env...), fmt.Sprintf("CARILLON_RANK=%d", rank),
			fmt.Sprintf("CARILLON_LOCAL_RANK=%d", rank))
		p.cmd.SysProcAttr = endsWithUs()
		out, err := p.cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		p.lines = bufio.NewScanner(out)
		if err := p.cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(p.kill)
		job[rank] = p
	}
	for _, p := range job {
		p.url = p.answer("at work")
	}
	return job
}

func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait() // it was killed
	}
}

// signal sends it a signal.
func (p *process) signal(sig os.Signal) {
	p.b.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.b.Fatal(err)
	}
}

// answer reads the process's next line, which begins with the given words, and returns the rest.
func (p *process) answer(words string) string {
	p.b.Helper()
	if !p.lines.Scan() {
		p.b.Fatalf("process %d ended and has not said %q", p.cmd.Process.Pid, words)
	}
	rest, ok := strings.CutPrefix(p.lines.Text(), words)
	if !ok {
		p.b.Fatalf("process %d says %q, want %q", p.cmd.Process.Pid, p.lines.Text(), words)
	}
	return strings.TrimSpace(rest)
}

// end ends a job.
func end(job []*process) {
	for _, p := range job {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range job {
		if err := p.cmd.Wait(); err != nil {
			p.b.Errorf("process %d: %v", p.cmd.Process.Pid, err)
		}
	}
}

// programs are the programs that the test binary can play.
var programs = map[string]func() int{
	"1": program, "idle": func() int { return play(idle) }, "steps": func() int { return play(steps) },
}

// play is the main of a rank.
func play(role func(context.Context, *ccl.Comm) error) int {
	ctx := context.Background()
	err := func() (err error) {
		n, err := node.Start(ctx, node.FromEnv(), node.WithSignals(false))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, n.Stop(ctx)) }()
		world, err := n.Runtime().World(ctx)
		if err != nil {
			return err
		}
		defer world.Close() //nolint:errcheck // the job is over
		if err := ccl.Barrier(ctx, world); err != nil {
			return err
		}
		fmt.Println("at work", n.HealthURL())
		return role(ctx, world)
	}()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// idle does nothing until SIGTERM. At SIGUSR1 it says how much of its heap is in use, in bytes.
func idle(context.Context, *ccl.Comm) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1)
	for sig := range signals {
		if sig == syscall.SIGTERM {
			break
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Println("heap", m.HeapAlloc)
	}
	return nil
}

// stepTime is the time of a step without its all-reduce.
const stepTime = 50 * time.Millisecond

// steps makes all-reduces until SIGTERM. After SIGUSR1 a rank prints when its next one was due, in nanoseconds since
// 1970, and does not enter it before SIGUSR2.
func steps(ctx context.Context, world *ccl.Comm) error {
	pause, resume := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(pause, syscall.SIGUSR1)
	signal.Notify(resume, syscall.SIGUSR2)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	end := []int32{0}
	for compute := time.NewTicker(stepTime); ; <-compute.C {
		select {
		case <-pause:
			fmt.Println("pauses", time.Now().UnixNano())
			<-resume
		case <-stop:
			end[0] = 1
		default:
		}
		// All ranks end after the same step, in which one of them was told to end.
		if err := ccl.AllReduce(ctx, world, end, end, ccl.Max); err != nil || end[0] > 0 {
			return err
		}
	}
}
