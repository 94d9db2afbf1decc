package ccl_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/profiler"
)

// profile is a plug-in that records what a rank does; its handles are names.
type profile struct {
	mu    sync.Mutex
	ranks map[int][]string
}

func (p *profile) Name() string { return "profile" }
func (p *profile) Mask() profiler.Mask {
	return profiler.Group | profiler.Collective | profiler.PointToPoint
}

func (p *profile) Init(i profiler.Info) (profiler.Recorder, error) {
	r := &ranked{profile: p, rank: i.Rank}
	r.say("init %s %d/%d on %d", i.Name, i.Rank, i.Size, i.Nodes)
	return r, nil
}

type ranked struct {
	*profile
	rank, last int
}

func (r *ranked) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ranks[r.rank] = append(r.ranks[r.rank], fmt.Sprintf(format, args...))
}

func (r *ranked) Start(e *profiler.Event) profiler.Handle {
	name := map[profiler.Mask]string{profiler.Group: "group", profiler.Collective: "coll", profiler.PointToPoint: "p2p"}
	if name[e.Type] == "" {
		return nil
	}
	r.last++
	h := fmt.Sprint(name[e.Type], r.last)
	if e.Type == profiler.Group {
		r.say("%s", h)
	} else {
		o := e.Op
		r.say("%s in %v: %v %d: %d %v, peer %d, %v, %v", h, e.Group, o.Call, o.Seq, o.Count, o.DataType, o.Peer,
			o.Send != 0, o.Recv != 0)
	}
	return h
}

func (r *ranked) State(profiler.Handle, *profiler.Change) {}
func (r *ranked) Stop(h profiler.Handle, e *profiler.End) { r.say("%v ends: %v", h, e.Code) }
func (r *ranked) Finalize()                               { r.say("finalize") }

// The plug-ins are told of every call, however it is made, and of its end, even if it fails.
func TestProfile(t *testing.T) {
	p := &profile{ranks: map[int][]string{}}
	plugins := profiler.New(profiler.Config{Plugins: []profiler.Plugin{p}, Log: slog.New(slog.DiscardHandler)})
	rt, err := ccl.New(ccl.Config{Engine: host.Kind(), Profiler: plugins, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	comms, err := rt.InitAll(t.Context(), 2, ccl.WithName("dp"))
	if err != nil {
		t.Fatal(err)
	}
	var ranks errgroup.Group
	ctx := t.Context()
	for r, c := range comms {
		ranks.Go(func() error {
			one, two := make([]int32, 1), make([]int32, 1)
			err := errors.Join(
				ccl.AllReduce(ctx, c, one, two, ccl.Sum),
				ccl.IBroadcast(ctx, c, one, two, 1).Wait(ctx),
				ccl.SendRecv(ctx, c, one, 1-r, two, 1-r),
				rt.Group(ctx, func(g *ccl.Group) error {
					return errors.Join(ccl.Send(g, c, one, 1-r), ccl.Recv(g, c, two, 1-r), ccl.Barrier(g, c))
				}))
			if r == 1 {
				return errors.Join(err, c.Abort(nil))
			}
			if ccl.Barrier(ctx, c) == nil {
				t.Error("a barrier with a rank that has left is no error")
			}
			return errors.Join(err, c.Destroy(ctx))
		})
	}
	if err := errors.Join(ranks.Wait(), rt.Close(ctx)); err != nil {
		t.Error(err)
	}
	plugins.Close(ctx)
	both := func(rank int) []string {
		return strings.Split(fmt.Sprintf(`init dp %[1]d/2 on 1
group1
coll2 in group1: all_reduce 1: 1 int32, peer -1, true, true
coll2 ends: ok
group1 ends: ok
group3
coll4 in group3: broadcast 2: 1 int32, peer 1, %[3]v, true
coll4 ends: ok
group3 ends: ok
group5
p2p6 in group5: send 1: 1 int32, peer %[2]d, true, false
p2p7 in group5: recv 1: 1 int32, peer %[2]d, false, true
p2p6 ends: ok
p2p7 ends: ok
group5 ends: ok
group8
p2p9 in group8: send 2: 1 int32, peer %[2]d, true, false
p2p10 in group8: recv 2: 1 int32, peer %[2]d, false, true
p2p9 ends: ok
p2p10 ends: ok
coll11 in group8: barrier 3: 0 uint8, peer -1, false, false
coll11 ends: ok
group8 ends: ok`, rank, 1-rank, rank == 1), "\n")
	}
	want := map[int][]string{
		0: append(both(0), "group12", "coll13 in group12: barrier 4: 0 uint8, peer -1, false, false",
			"coll13 ends: peer_aborted", "group12 ends: peer_aborted", "finalize"),
		1: append(both(1), "finalize"),
	}
	if diff := cmp.Diff(want, p.ranks); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
