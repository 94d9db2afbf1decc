package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/tests/e2e"
)

// quietly starts a job of this test's binary, whose ranks play a role and use the default log.
func quietly(t *testing.T, role string, env ...string) *e2e.Job {
	t.Helper()
	return e2e.Start(t, append(env, roleVariable+"="+role, "CARILLON_LOG=", "NCCL_DEBUG="),
		"carillon", "run", "-n", "3", "--tape-dir", t.TempDir(), "--", os.Args[0])
}

// saidByRanks returns the lines that the ranks printed.
func saidByRanks(j *e2e.Job) []string {
	return regexp.MustCompile(`(?m)^\[\d\] .*$`).FindAllString(j.Output(), -1)
}

// TestHandledErrorIsQuiet: an error that a program handles is returned, and nothing is printed about it.
func TestHandledErrorIsQuiet(t *testing.T) {
	job := quietly(t, "handle")
	if code := job.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if lines := saidByRanks(job); len(lines) != 2 || strings.Count(job.Output(), "handled true") != 2 {
		t.Errorf("the ranks said %q, want what they print themselves", lines)
	}
}

// TestInterruptIsQuiet: ^C on a healthy job gives one line per rank: the program's own. The error isn't a timeout.
func TestInterruptIsQuiet(t *testing.T) {
	job := quietly(t, "interrupt")
	for rank := range 3 {
		job.Await(fmt.Sprintf(`^\[%d\] at work$`, rank))
	}
	job.Signal(syscall.SIGINT)
	job.ExitCode()
	lines := saidByRanks(job)
	if len(lines) != 6 {
		t.Errorf("the ranks said %d lines, want two each:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	if text := job.Output(); !strings.Contains(text, "canceled true") || strings.Contains(text, "timeout true") ||
		strings.Contains(text, "more time") {
		t.Errorf("it was not canceled:\n%s", text)
	}
}

// TestInterruptIsNoNews: ranks that ^C ends are no news to the last one, which is left for a while and sees the others
// end. It tells of no rank, whether it handles signals as RAS can see or, as here, in its own way.
func TestInterruptIsNoNews(t *testing.T) {
	job := quietly(t, "last")
	for rank := range 3 {
		job.Await(fmt.Sprintf(`^\[%d\] at work$`, rank))
	}
	job.Signal(syscall.SIGINT)
	job.Await(`^\[0\] canceled false`)
	job.ExitCode()
	if text := job.Output(); strings.Contains(text, "rank_dead") {
		t.Errorf("the end of a rank is told:\n%s", text)
	}
}

// TestRankThatEndsEarlyIsNamed: a rank that ends well before it takes part in anything is not one that hasn't started.
func TestRankThatEndsEarlyIsNamed(t *testing.T) {
	job := quietly(t, "early", "CARILLON_STALL_THRESHOLD=500ms")
	job.Await(`^\[0\] .*level=WARN msg="rank 1 \(.*\) left the job .* ago: it exited with 0; ranks 0 and 2 wait" `)
	job.Signal(syscall.SIGTERM)
	job.ExitCode()
	if text := job.Output(); strings.Contains(text, "not_joined") {
		t.Errorf("something else was told before:\n%s", text)
	}
}

// TestMissingRankIsNamed: ranks that wait for a rank that never comes soon name it.
func TestMissingRankIsNamed(t *testing.T) {
	job := quietly(t, "miss")
	for _, rank := range []int{0, 1} {
		job.Await(
			fmt.Sprintf(`^\[%d\] .*msg="rank 2 has not come to the rendezvous yet" .* waited=[2-9].*gives_up_in=9m5`,
				rank),
		)
	}
}

// quietRank plays a role.
func quietRank(role string) (err error) {
	ctx := context.Background()
	if role == "interrupt" {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt)
		defer stop()
	}
	if role == "miss" && os.Getenv("RANK") == "2" {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		<-end
		return nil
	}
	if role == "early" && os.Getenv("RANK") == "1" {
		return nil
	}
	if role == "last" {
		told := make(chan os.Signal, 1)
		signal.Notify(told, os.Interrupt)
		go func() {
			<-told
			if os.Getenv("RANK") != "0" {
				os.Exit(1)
			}
		}()
	}
	n, err := node.Start(ctx, node.FromEnv())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Stop(context.WithoutCancel(ctx))) }()
	world, err := n.Runtime().World(ctx)
	if err != nil {
		return err
	}
	defer world.Close()
	if role == "handle" && world.Rank() == 1 {
		return nil // and so destroys the communicator that the others use
	}
	numbers := make([]float32, 10)
	compute := time.NewTicker(10 * time.Millisecond) // between two steps
	defer compute.Stop()
	for step := 0; err == nil; step++ {
		if (role == "interrupt" || role == "last") && step == 20 { // the ranks are in step by now
			fmt.Println("at work")
		}
		<-compute.C
		err = ccl.AllReduce(ctx, world, numbers, numbers, ccl.Sum)
	}
	if role == "handle" {
		fmt.Println("handled", errors.Is(err, ccl.ErrPeerAborted))
		return nil
	}
	fmt.Println("canceled", errors.Is(err, ccl.ErrCanceled), "timeout", errors.Is(err, ccl.ErrTimeout), err)
	return nil
}
