package wire

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/tests/e2e"
)

// textVariable makes this program a rank, and has the text that it sends.
const textVariable = "CARILLONTEST_WIRE_TEXT"

func TestMain(m *testing.M) {
	text, isRank := os.LookupEnv(textVariable)
	if !isRank {
		os.Exit(e2e.Main(m))
	}
	if err := runRank(context.Background(), text); err != nil {
		fmt.Fprintln(os.Stderr, "rank:", err)
		os.Exit(1)
	}
}

// runRank all-reduces a text many times, so that the result is the text again.
func runRank(ctx context.Context, text string) error {
	n, err := node.Start(ctx, node.FromEnv(), node.WithHealth(""))
	if err != nil {
		return err
	}
	defer n.Stop(ctx) //nolint:errcheck // it has nothing left to send
	world, err := n.Runtime().World(ctx)
	if err != nil {
		return err
	}
	defer world.Close() //nolint:errcheck // likewise
	mine := bytes.Repeat([]byte(text), 1<<10)
	for range 20 {
		sum := make([]byte, len(mine))
		if err := ccl.AllReduce(ctx, world, mine, sum, ccl.Max); err != nil {
			return err
		}
		if !bytes.Equal(sum, mine) {
			return errors.New("another text came out")
		}
	}
	fmt.Println("done over", world.Topology().Transport[1-world.Rank()])
	return nil
}

// overhear looks for the text on the network until stop is called; stop returns whether it was there, once all packets
// were checked.
func overhear(t *testing.T, text string) (stop func() bool) {
	t.Helper()
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8 // in network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all)
	if err != nil {
		t.Fatalf("listen in on the network, which needs root: %v", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20) // the default is too small
	socket := os.NewFile(uintptr(fd), "network")
	end := []byte(rand.Text())
	heard := make(chan bool, 1)
	go func() {
		found, packet := false, make([]byte, 1<<17)
		for {
			n, err := socket.Read(packet)
			if err != nil {
				heard <- found
				return
			}
			found = found || bytes.Contains(packet[:n], []byte(text))
			if bytes.Contains(packet[:n], end) {
				heard <- found
				return
			}
		}
	}()
	return func() bool {
		defer socket.Close()
		c, err := net.Dial("udp", "127.0.0.1:9")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		again := time.NewTicker(100 * time.Millisecond)
		defer again.Stop()
		for {
			_, _ = c.Write(end) // nobody needs to listen there
			select {
			case found := <-heard:
				return found
			case <-again.C:
			}
		}
	}
}

// start starts a job of two ranks that share no memory.
func start(t *testing.T, text, script string) *e2e.Job {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return e2e.Start(t, []string{textVariable + "=" + text, "NCCL_SHM_DISABLE=1", "CARILLON_TAPE_DIR=" + t.TempDir()},
		"carillon", "run", "-n", "2", "--linger", "20s", "--", "sh", "-c", script+`; exec "$0"`, program)
}

// Data that ranks send each other is visible on the network, unless they encrypt it.
func TestOverheard(t *testing.T) {
	for mode, seen := range map[string]bool{"plain": true, "authenticate": true, "encrypt": false} {
		t.Run(mode, func(t *testing.T) {
			text := rand.Text()
			stop := overhear(t, text)
			job := start(t, text, "export CARILLON_WIRE="+mode)
			if code := job.ExitCode(); code != 0 || strings.Count(job.Output(), "done over tcp") != 2 {
				t.Errorf("exit code %d", code)
			}
			if heard := stop(); heard != seen {
				t.Errorf("that the text was on the network is %v, want %v", heard, seen)
			}
		})
	}
}

// If the two ranks of a job protect it differently, each rank says so, and names the other.
func TestTwoWires(t *testing.T) {
	job := start(t, rand.Text(), `export CARILLON_WIRE=plain; if [ "$RANK" = 1 ]; then CARILLON_WIRE=encrypt; fi`)
	job.Await(`(?m)^\[0\] .*rank 1.*its wire is to be "encrypt", and this rank's "plain": set CARILLON_WIRE alike`)
	job.Await(`(?m)^\[1\] .*rank 0.*its wire is to be "plain", and this rank's "encrypt": set CARILLON_WIRE alike`)
	if job.ExitCode() == 0 {
		t.Error("the job went well")
	}
}
