package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// A context may end on one rank at any moment of a call that makes a communicator: all others are told that it was this
// rank, by that call or by the next one on the new communicator. No rank needs its own context to end.
func TestACallThatIsCanceledOnOneRank(t *testing.T) {
	const size, rounds = 4, 8
	seed := rand.Uint64()
	for hosts, cfg := range map[string]func(rank int) fabric.Config{
		"one host":   func(int) fabric.Config { return fabric.Config{} },
		"two hosts":  func(rank int) fabric.Config { return fabric.Config{HostID: fmt.Sprint("host", rank%2)} },
		"four hosts": func(rank int) fabric.Config { return fabric.Config{HostID: fmt.Sprint("host", rank)} },
	} {
		for _, call := range []string{"init", "split", "shrink", "grow"} {
			t.Run(call+"/"+hosts, func(t *testing.T) {
				t.Parallel()
				moments := rand.New(rand.NewPCG(seed, 1))
				for round := range rounds {
					m := &makers{t: t, call: call, victim: moments.IntN(size - 1)}
					for rank := range size {
						m.rts = append(m.rts, newRuntime(t, ccl.Config{Fabric: cfg(rank)}))
					}
					after := time.Duration(moments.ExpFloat64() * float64(3*time.Millisecond))
					if errs := m.make(after); errs[m.victim] != nil {
						for rank, err := range errs {
							if !m.told(rank, err) {
								t.Errorf("round %d of seed %d: rank %d was canceled after %v, and rank %d was told %v",
									round, seed, m.victim, after, rank, err)
							}
						}
					}
				}
			})
		}
	}
}

// makers are ranks, each with its own runtime, that make a communicator; the context of one of them ends. The last rank
// is excluded from a shrink, and joins in a grow.
type makers struct {
	t      *testing.T
	call   string
	victim int
	rts    []*ccl.Runtime
}

func (m *makers) id() ccl.UniqueID {
	id, err := m.rts[0].NewUniqueID()
	if err != nil {
		m.t.Fatal(err)
	}
	return id
}

// make returns how the call ended on each rank, or, if it succeeded, how a barrier on the new communicator ended.
func (m *makers) make(after time.Duration) []error {
	first, second, size := m.id(), m.id(), len(m.rts)
	old := map[string]int{"init": 0, "split": size, "shrink": size, "grow": size - 1}[m.call]
	var met, ranks sync.WaitGroup
	met.Add(size)
	errs, comms := make([]error, size), make([]*ccl.Comm, 2*size)
	for rank, rt := range m.rts {
		ranks.Go(func() {
			ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
			defer cancel()
			var comm *ccl.Comm
			if rank < old {
				var err error
				if comm, err = rt.InitRank(ctx, first, old, rank); err != nil {
					m.t.Error(err)
				}
			}
			met.Done()
			if met.Wait(); m.t.Failed() || m.call == "shrink" && rank == size-1 {
				return
			}
			if rank == m.victim {
				defer time.AfterFunc(after, cancel).Stop()
			}
			made, err := m.one(ctx, rt, comm, rank, second)
			if err == nil {
				err = ccl.Barrier(m.t.Context(), made)
			}
			errs[rank], comms[rank], comms[size+rank] = err, comm, made
		})
	}
	ranks.Wait()
	for _, c := range comms { // closed only now, so that no rank was told by that
		if c != nil {
			_ = c.Abort(nil)
		}
	}
	return errs
}

func (m *makers) one(
	ctx context.Context, rt *ccl.Runtime, comm *ccl.Comm, rank int, id ccl.UniqueID,
) (*ccl.Comm, error) {
	size := len(m.rts)
	switch {
	case m.call == "init":
		return rt.InitRank(ctx, id, size, rank)
	case m.call == "split":
		return comm.Split(ctx, 0, rank)
	case m.call == "shrink":
		return comm.Shrink(ctx, []int{size - 1}, ccl.ShrinkAbort)
	case rank == size-1:
		return rt.JoinGrow(ctx, id, size, rank)
	case rank == 0:
		return comm.Grow(ctx, id, size)
	default:
		return comm.Grow(ctx, ccl.UniqueID{}, size)
	}
}

// told reports whether a rank has an error of the victim. A joining rank is told by a rank that it meets, which says
// why it leaves.
func (m *makers) told(rank int, err error) bool {
	if rank == m.victim || m.call == "shrink" && rank == len(m.rts)-1 {
		return true
	}
	peer, ok := errors.AsType[*ccl.PeerError](err)
	return ok && !errors.Is(err, context.DeadlineExceeded) &&
		(peer.Rank == m.victim ||
			m.call == "grow" && strings.Contains(err.Error(), fmt.Sprintf("rank %d of", m.victim)))
}
