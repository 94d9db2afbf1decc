package rails

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/rendezvous/launch"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// rankVariable makes the test binary a rank of a job: a job as JSON.
const rankVariable = "CARILLONTEST_RAILS_RANK"

// job is what a rank is told.
type job struct {
	Hosts  []int // ranks of each
	Rank   int
	Do     string // measure or count
	PXN    bool   // count: whether it is on
	Want   []int  // count: the connections of each rank
	Sizes  []int  // measure: bytes that each rank sends
	Budget time.Duration
}

func (j job) size() (n int) {
	for _, ranks := range j.Hosts {
		n += ranks
	}
	return n
}

// host is the host of a rank.
func (j job) host(rank int) (i int) {
	for ; rank >= j.Hosts[i]; i++ {
		rank -= j.Hosts[i]
	}
	return i
}

// timing is the median time of an all-to-all, with PXN off and on.
type timing struct {
	Bytes   int
	Off, On time.Duration
}

func runRank() error {
	var j job
	if err := json.Unmarshal([]byte(os.Getenv(rankVariable)), &j); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	on := []bool{false, true}
	if j.Do == "count" {
		on = []bool{j.PXN}
	}
	var worlds [2]*ccl.Comm // PXN off, on
	for i := range on {
		rt, err := ccl.New(ccl.Config{
			Engine: host.Kind(), Log: slog.New(slog.DiscardHandler),
			World: launch.World{
				Rank: j.Rank, Size: j.size(), Address: fmt.Sprintf("%s:%d", address(0), 7000+i),
				Secret: []byte("the secret of these ranks"),
			},
			Fabric: fabric.Config{HostID: fmt.Sprint("host", j.host(j.Rank)), DisablePXN: !on[i]},
		})
		if err != nil {
			return err
		}
		defer rt.Close(ctx) //nolint:errcheck // the ranks end together
		if worlds[i], err = rt.World(ctx); err != nil {
			return err
		}
		defer worlds[i].Close() //nolint:errcheck // as above
		if err := ccl.Barrier(ctx, worlds[i]); err != nil {
			return err
		}
	}
	out := json.NewEncoder(os.Stdout)
	switch j.Do {
	case "count":
		n := connections()
		for end := time.Now().Add(10 * time.Second); n != j.Want[j.Rank] && time.Now().Before(end); n = connections() {
			time.Sleep(time.Millisecond) // those by which the ranks found each other end soon, as the kernel says
		}
		if err := out.Encode(n); err != nil {
			return err
		}
		return ccl.Barrier(ctx, worlds[0]) // so that none leaves while others count
	case "measure":
		for _, size := range j.Sizes {
			t, err := measure(ctx, worlds, size, j.Budget)
			if err != nil {
				return err
			}
			if j.Rank == 0 {
				if err := out.Encode(t); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return errors.New("nothing to do")
}

// Each turn of a world has a few calls that don't count: what the other one used goes to sleep.
const (
	settle = 3
	turn   = 10
)

// measure times all-to-alls over both worlds, by turns.
func measure(ctx context.Context, worlds [2]*ccl.Comm, size int, budget time.Duration) (timing, error) {
	n := worlds[0].Size()
	send := make([]byte, max(size/n, 1)*n)
	recv := make([]byte, len(send))
	var times [2][]time.Duration
	end := time.Now().Add(budget)
	for more := []int32{1}; more[0] > 0; {
		for i, world := range worlds {
			for k := range settle + turn {
				begun := time.Now()
				if err := ccl.AllToAll(ctx, world, send, recv); err != nil {
					return timing{}, err
				}
				if k >= settle {
					times[i] = append(times[i], time.Since(begun))
				}
			}
		}
		more[0] = 0
		if time.Now().Before(end) {
			more[0] = 1
		}
		if err := ccl.Broadcast(ctx, worlds[0], more, more, 0); err != nil {
			return timing{}, err
		}
	}
	t := timing{Bytes: len(send)}
	for i, to := range []*time.Duration{&t.Off, &t.On} {
		slices.Sort(times[i])
		*to = times[i][len(times[i])/2]
	}
	return t, nil
}

// connections counts the connections with ranks of other hosts of this process, each of which has a socket for either
// direction.
func connections() (n int) {
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		panic(err)
	}
	established := map[string]bool{}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 9 && f[3] == "01" {
			established["socket:["+f[9]+"]"] = true
		}
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	for _, f := range files {
		if target, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && established[target] {
			n++
		}
	}
	return n / 2
}

// run runs a job, and returns what each rank printed.
func run(tb testing.TB, j job) (printed []string) {
	tb.Helper()
	enter := newHosts(tb, len(j.Hosts))
	printed = make([]string, j.size())
	cmds := make([]*exec.Cmd, j.size())
	outs := make([]io.Reader, j.size())
	for rank := range cmds {
		j.Rank = rank
		text, err := json.Marshal(j)
		if err != nil {
			tb.Fatal(err)
		}
		args := append(slices.Clone(enter[j.host(rank)]), "/proc/self/exe")
		self, err := os.Executable()
		if err != nil {
			tb.Fatal(err)
		}
		args[len(args)-1] = self
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), rankVariable+"="+string(text))
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err != nil {
			tb.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			tb.Fatal(err)
		}
		cmds[rank], outs[rank] = cmd, out
	}
	for rank, cmd := range cmds {
		text, err := io.ReadAll(outs[rank])
		if err != nil {
			tb.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			tb.Errorf("rank %d: %v", rank, err)
		}
		printed[rank] = string(text)
	}
	return printed
}
