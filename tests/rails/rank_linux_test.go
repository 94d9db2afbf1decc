package rails

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/runtime/rendezvous/launch"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// rankVariable makes the test binary a rank of a job: a job as JSON.
const rankVariable = "CARILLONTEST_RAILS_RANK"

// job is the description of a job that a rank gets.
type job struct {
	Hosts  []int // how many ranks each host has
	Rank   int
	Do     string // count, profile, alltoall or allreduce
	PXN    bool   // count: whether it is on
	Want   []int  // count: the connections of each rank
	Sizes  []int  // alltoall, allreduce: bytes of each rank's input
	Budget time.Duration
	Plugin string // profile: the plug-in in C
	Tapes  string // profile: the folder for tapes
}

func (j job) size() (n int) {
	for _, ranks := range j.Hosts {
		n += ranks
	}
	return n
}

// host is the index of a rank's host.
func (j job) host(rank int) (i int) {
	for ; rank >= j.Hosts[i]; i++ {
		rank -= j.Hosts[i]
	}
	return i
}

// runtime makes the runtime of a world of the job. p and t, which observe the rank, may be nil.
func (j job) runtime(world int, pxn bool, p *profiler.Profiler, t *tape.Writer) (*ccl.Runtime, error) {
	return ccl.New(ccl.Config{
		Engine: host.Kind(), Log: slog.New(slog.DiscardHandler), Profiler: p, Tape: t,
		World: launch.World{
			Rank: j.Rank, Size: j.size(), Address: fmt.Sprintf("%s:%d", address(0), 7000+world),
			Secret: []byte("the secret of these ranks"),
		},
		Fabric: fabric.Config{HostID: fmt.Sprint("host", j.host(j.Rank)), DisablePXN: !pxn},
	})
}

func runRank() error {
	var j job
	if err := json.Unmarshal([]byte(os.Getenv(rankVariable)), &j); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	if j.Do == "profile" {
		return profileRank(ctx, j)
	}
	var on []bool
	switch j.Do {
	case "alltoall":
		on = []bool{false, true}
	case "allreduce":
		on = []bool{true}
	default:
		on = []bool{j.PXN}
	}
	var worlds [2]*ccl.Comm // PXN off, on
	for i := range on {
		rt, err := j.runtime(i, on[i], nil, nil)
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
			time.Sleep(time.Millisecond) // connections of the rendezvous close soon; the kernel still lists them
		}
		if err := out.Encode(n); err != nil {
			return err
		}
		return ccl.Barrier(ctx, worlds[0]) // so that no rank leaves while others count
	case "alltoall":
		if err := touchWindows(ctx, worlds); err != nil {
			return err
		}
		for _, size := range j.Sizes {
			t, err := measureAllToAll(ctx, worlds, size, j.Budget)
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
	case "allreduce":
		for _, size := range j.Sizes {
			took, err := measureAllReduce(ctx, worlds[0], size, j.Budget)
			if err != nil {
				return err
			}
			if j.Rank == 0 {
				fmt.Println(took.iterations, took.latency.Seconds())
			}
		}
		return nil
	}
	return errors.New("nothing to do")
}

// connections counts this process's connections with ranks on other hosts. Each such rank has a socket for each
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

// run runs a job on hosts of its own, and returns what each rank printed.
func run(tb testing.TB, j job) (printed []string) {
	tb.Helper()
	return runOn(tb, newHosts(tb, len(j.Hosts)), j)
}

// runOn runs a job on hosts that there are.
func runOn(tb testing.TB, enter [][]string, j job) (printed []string) {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmds := make([]*exec.Cmd, j.size())
	for j.Rank = range cmds {
		text, err := json.Marshal(j)
		if err != nil {
			tb.Fatal(err)
		}
		cmds[j.Rank] = onHost(enter[j.host(j.Rank)], self)
		cmds[j.Rank].Env = append(os.Environ(), rankVariable+"="+string(text))
	}
	return together(tb, cmds)
}
