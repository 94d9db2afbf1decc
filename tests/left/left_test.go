package left

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/tests/e2e"
)

// endVariable makes the test's binary a rank, and says how rank 1 ends.
const endVariable = "CARILLONTEST_LEFT_END"

// ends are ways in which a process ends before it can send its spans. Deferred calls run only in the first.
var ends = map[string]func(){
	"panic":                func() { panic("rank 1 panics") },
	"log.Fatal":            func() { log.Fatal("rank 1 gives up") },
	"os.Exit":              func() { os.Exit(1) },
	"panic in a goroutine": func() { go panic("rank 1 panics"); select {} },
	"SIGKILL":              kill,
	goOn:                   kill,
}

func kill() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// With goOn the other ranks wait for SIGTERM; with well all ranks succeed.
const (
	goOn = "SIGKILL, and the others go on"
	well = "well"
)

func TestMain(m *testing.M) {
	if end := os.Getenv(endVariable); end != "" {
		rank(end)
		return
	}
	os.Exit(e2e.Main(m))
}

// rank is a program for which every error is fatal at once.
func rank(end string) {
	ctx := context.Background()
	n, err := node.Start(ctx, node.FromEnv())
	if err != nil {
		log.Fatal(err)
	}
	defer n.Stop(ctx)
	world, err := n.Runtime().World(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer world.Close()
	if world.Size() == 1 { // an operation of its own may not be sampled, and no rank has left it
		return
	}
	if world.Rank() == 1 && end != well {
		ends[end]()
	}
	sum := []float32{float32(world.Rank())}
	switch err := ccl.AllReduce(ctx, world, sum, sum, ccl.Sum); {
	case err != nil && end == goOn:
		select {}
	case err != nil:
		log.Fatal(err)
	}
}

// TestLauncher: the launcher sends the spans that its ranks left.
func TestLauncher(t *testing.T) {
	for end := range ends {
		if end == goOn {
			continue
		}
		t.Run(end, func(t *testing.T) {
			c, tapes := newCollector(t), t.TempDir()
			j := e2e.Start(t, append(c.env, endVariable+"="+end), "carillon", "run", "-n", "3", "--tape-dir", tapes,
				"--", os.Args[0])
			if j.ExitCode() == 0 {
				t.Error("the job ended well")
			}
			c.hasOnce(t, "ccl.comm.init", "0", "1", "2")
			c.hasOnce(t, "ccl.all_reduce", "0", "2")
			for _, rank := range []string{"0", "2"} { // they end by log.Fatal
				e2e.Start(t, nil, "carillon", "postmortem", tapes).Await(`^  ` + rank + ` .* exited with 1 `)
			}
		})
	}
}

// TestNextStart: without a launcher that knows of tapes, the next process that sends to the same collector sends the
// spans that others left. A process that sends to another collector doesn't.
func TestNextStart(t *testing.T) {
	c, elsewhere := newCollector(t), newCollector(t)
	tapes := "CARILLON_TAPE_DIR=" + t.TempDir()
	for _, j := range launch(t, 3, e2e.FreePort(t), append(c.env, tapes, endVariable+"=os.Exit")...) {
		j.ExitCode()
	}
	c.hasOnce(t, "ccl.comm.init")
	for range 2 {
		for _, to := range []*collector{elsewhere, c} {
			for _, j := range launch(t, 1, e2e.FreePort(t), append(to.env, tapes, endVariable+"="+well)...) {
				if j.ExitCode() != 0 {
					t.Error("the next start failed")
				}
			}
		}
	}
	c.hasOnce(t, "ccl.all_reduce", "0", "2")
	c.hasOnce(t, "ccl.comm.init.rendezvous", "0", "0", "0", "1", "2") // two are from the worlds of one rank
	elsewhere.hasOnce(t, "ccl.comm.init.rendezvous", "0", "0")
}

// TestOthersOfTheJob: the spans that a rank left are sent by the other ranks, if they go on.
func TestOthersOfTheJob(t *testing.T) {
	c := newCollector(t)
	ranks := launch(t, 3, e2e.FreePort(t), append(c.env, "CARILLON_TAPE_DIR="+t.TempDir(), endVariable+"="+goOn)...)
	c.await("ccl.comm.init", "1")
	for _, r := range []int{0, 2} {
		ranks[r].Signal(syscall.SIGTERM)
	}
	for _, j := range ranks {
		j.ExitCode()
	}
	c.hasOnce(t, "ccl.comm.init", "0", "1", "2")
	c.hasOnce(t, "ccl.all_reduce", "0", "2")
}

// launch starts ranks as a shell would, with only their environment.
func launch(t *testing.T, n int, port string, env ...string) (ranks []*e2e.Job) {
	t.Helper()
	for r := range n {
		ranks = append(ranks,
			e2e.Start(t, append(slices.Clone(env), fmt.Sprint("RANK=", r), fmt.Sprint("WORLD_SIZE=", n),
				"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port), os.Args[0]))
	}
	return ranks
}
