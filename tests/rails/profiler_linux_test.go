package rails

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/runtime/profiler/native"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// told is what a rank's plug-in in Go was told.
type told struct {
	Sent, Received map[string]int // bytes, by owner and peer of the operations
	Waited         bool           // for the peer
	Own, Shared    int            // operations of the carrier's process that were in use while it waited for one
}

// Plug-ins of every process see the operations of other processes, some in the memory that these share, but get only
// contexts and handles of their own process. An operation has its true owner, and receivers count its bytes for that
// owner, too. The carrier, whose pools are exhausted meanwhile, waits, and its in-flight table says for what.
func TestContexts(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), "contexts.so")
	build := exec.CommandContext(t.Context(), "cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
		"-o", plugin, "testdata/contexts.c")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	printed := run(t, job{Hosts: []int{4, 4}, Do: "profile", Plugin: plugin, Tapes: t.TempDir()})
	all := make([]told, len(printed))
	for rank, text := range printed {
		if err := json.Unmarshal([]byte(text), &all[rank]); err != nil {
			t.Errorf("rank %d printed %q", rank, text)
		}
	}
	for rank, got := range all {
		want := told{Sent: map[string]int{}, Received: got.Received, Waited: got.Waited}
		if rank == carrier {
			want.Waited, want.Own, want.Shared = true, ownOps, sharedOps
		}
		opposite := rank ^ 4 // the rank of its rail
		for mate := rank &^ 3; mate < rank&^3+4; mate++ {
			n := all[opposite].Received[fmt.Sprint(opposite, mate)]
			if want.Sent[fmt.Sprint(mate, opposite)] = n; n == 0 {
				t.Errorf("rank %d has received nothing from rank %d", opposite, mate)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got.Received) != 4 {
			t.Errorf("rank %d has received %v (-want +got):\n%s", rank, got.Received, diff)
		}
	}
}

// The ranks of the first host send messages to one rank of the other host through its carrier, over several
// communicators: more messages than the carrier's process has operations, and fewer than the receiver has room for.
const (
	carrier  = 1
	receiver = 5
	splits   = 4
	size     = 600 // no message takes two operations

	ownOps, sharedOps = 1024, 512 // operations of a process's pool, and of the memory that a host's ranks share
)

func messages(from int) int {
	if from == carrier {
		return 700
	}
	return 50
}

// owners is a plug-in that sums the bytes of each owner. One goroutine calls all its methods.
type owners struct {
	told
	pids map[[2]int]bool // rank and process of the operations
}

func newOwners() *owners {
	return &owners{told: told{Sent: map[string]int{}, Received: map[string]int{}}, pids: map[[2]int]bool{}}
}

func (*owners) Name() string                        { return "owners" }
func (*owners) Mask() profiler.Mask                 { return profiler.ProxyStep }
func (*owners) Stop(profiler.Handle, *profiler.End) {}
func (*owners) Finalize()                           {}

// Init ignores the world.
func (o *owners) Init(info profiler.Info) (profiler.Recorder, error) {
	if info.Name == "world" {
		return newOwners(), nil
	}
	return o, nil
}

// Start returns the owner and peer as the handle of an operation and its steps, and ignores all other events.
func (o *owners) Start(e *profiler.Event) profiler.Handle {
	switch e.Type {
	case profiler.ProxyOp:
		owner := e.Proxy.Owner
		o.pids[[2]int{owner.Rank, owner.PID}] = true
		return fmt.Sprint(owner.Rank, e.Proxy.Peer)
	case profiler.ProxyStep:
		return e.Parent
	default:
		return nil
	}
}

func (o *owners) State(h profiler.Handle, c *profiler.Change) {
	switch c.State {
	case profiler.SendPeerWait:
		o.Waited = true
	case profiler.SendWait:
		o.Sent[h.(string)] += int(c.N)
	case profiler.RecvGPUWait:
		o.Received[h.(string)] += int(c.N)
	default:
	}
}

// profileRank is a rank of TestContexts.
func profileRank(ctx context.Context, j job) error {
	seen := newOwners()
	p := profiler.New(profiler.Config{Plugins: []profiler.Plugin{native.New(j.Plugin), seen}})
	recorder, err := tape.Create(tape.Config{Dir: j.Tapes})
	if err != nil {
		return err
	}
	defer recorder.Close() //nolint:errcheck // nobody reads it any more
	rt, err := j.runtime(0, true, p, recorder)
	if err != nil {
		return err
	}
	world, err := rt.World(ctx)
	if err != nil {
		return err
	}
	pids := make([]int32, j.size())
	if err := ccl.AllGather(ctx, world, []int32{int32(os.Getpid())}, pids); err != nil {
		return err
	}
	var comms []*ccl.Comm
	for range splits {
		comm, err := world.Split(ctx, 0, j.Rank)
		if err != nil {
			return err
		}
		comms = append(comms, comm)
	}
	var jammed fabric.ProxyStats
	if j.Rank == carrier {
		jammed, err = jam(ctx, rt, recorder.Path(), func() error { return exchange(ctx, rt, comms) })
	} else {
		err = exchange(ctx, rt, comms)
	}
	// What a rank still carries after its own communicator has ended is not reported, so the world's barrier comes
	// first.
	err = errors.Join(err, ccl.AllToAll(ctx, comms[0], make([]byte, j.size()), make([]byte, j.size())),
		ccl.Barrier(ctx, world))
	for _, comm := range append(comms, world) {
		err = errors.Join(err, comm.Destroy(ctx))
	}
	err = errors.Join(err, rt.Close(ctx))
	p.Close(ctx)
	for _, s := range p.Status() {
		if s.Off != "" {
			err = errors.Join(err, fmt.Errorf("plug-in %s is off: %s", s.Name, s.Off))
		}
	}
	seen.Own, seen.Shared = jammed.Own, jammed.Shared
	for who := range seen.pids {
		if int(pids[who[0]]) != who[1] {
			err = errors.Join(err, fmt.Errorf("rank %d is process %d, not %d", who[0], pids[who[0]], who[1]))
		}
	}
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(seen.told))
}

// exchange sends or receives a rank's messages.
func exchange(ctx context.Context, rt *ccl.Runtime, comms []*ccl.Comm) error {
	return rt.Group(ctx, func(g *ccl.Group) error {
		for _, comm := range comms {
			for from := range 4 {
				for range messages(from) {
					switch comm.Rank() {
					case from:
						if err := ccl.Send(g, comm, make([]byte, size), receiver); err != nil {
							return err
						}
					case receiver:
						if err := ccl.Recv(g, comm, make([]byte, size), from); err != nil {
							return err
						}
					}
				}
			}
		}
		return nil
	})
}

// jam cuts the host off the network while send runs, until no operation is free and the in-flight table on its tape
// says that the rank waits for one. Both need not hold at once before that: the sockets' buffers first take some of the
// operations that already filled the pools. It returns the last counts.
func jam(ctx context.Context, rt *ccl.Runtime, path string, send func() error) (s fabric.ProxyStats, err error) {
	reader, err := tape.Open(path)
	if err != nil {
		return s, err
	}
	defer reader.Close() //nolint:errcheck // it only read
	link := func(state string) error { return exec.Command("ip", "link", "set", "eth0", state).Run() }
	if err := link("down"); err != nil {
		return s, err
	}
	var sending errgroup.Group
	sending.Go(send)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	waits := func(c tape.Slot) bool { return c.Phase == tape.PhasePool }
	for s.Own < ownOps || s.Shared < sharedOps || !slices.ContainsFunc(reader.Slots(), waits) {
		select {
		case <-ctx.Done():
			return s, errors.Join(ctx.Err(), link("up"), sending.Wait())
		case <-tick.C:
			s = rt.ProxyStats()
		}
	}
	return s, errors.Join(link("up"), sending.Wait())
}
