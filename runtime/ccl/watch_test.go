package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
)

// watch makes calls on one communicator and judges their results. It is used by one goroutine.
type watch struct {
	life     *life
	rt       *ccl.Runtime
	rank     int // in the life's communicator
	c        *ccl.Comm
	won      map[lifecycle.Call]int
	children []*ccl.Comm
}

// limit ends the calls that wait for ranks that don't arrive.
const limit = 200 * time.Millisecond

// work makes the calls that all ranks make, until one of them fails.
func (w *watch) work(ctx context.Context) error {
	if err := w.call(ctx, lifecycle.CallWait); err != nil {
		return err
	}
	for _, call := range w.life.schedule {
		if w.c.State() != lifecycle.StateReady {
			return w.call(ctx, w.life.afterwards)
		}
		if call == lifecycle.CallShrink && w.rank == w.life.ranks-1 {
			continue // the others continue without it
		}
		if err := w.call(ctx, call); err != nil {
			return err
		}
		if w.life.nonBlocking && w.life.patient {
			if err := w.call(ctx, lifecycle.CallWait); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *watch) meddle(ctx context.Context, m meddler) error {
	for _, step := range m {
		for range step.wait {
			runtime.Gosched()
		}
		var err error
		if step.bad {
			err = w.blunder(ctx, step.call)
		} else {
			err = w.call(ctx, step.call)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// blunder makes a call that is always an error, and changes nothing.
func (w *watch) blunder(ctx context.Context, call lifecycle.Call) error {
	var child *ccl.Comm
	var err error
	switch call {
	case lifecycle.CallSplit:
		child, err = w.c.Split(ctx, -5, 0)
	case lifecycle.CallShrink:
		child, err = w.c.Shrink(ctx, []int{w.rank}, ccl.ShrinkAbort)
	case lifecycle.CallGrow:
		child, err = w.c.Grow(ctx, ccl.UniqueID{}, w.life.ranks)
	case lifecycle.CallSend:
		err = ccl.Send(ctx, w.c, []int64{1}, w.life.ranks)
	case lifecycle.CallAllReduce:
		err = ccl.AllReduce(ctx, w.c, []int64{1}, make([]int64, 2), ccl.Sum)
	default:
		return w.blunderInGroup(ctx)
	}
	var usage *ccl.UsageError
	if !errors.As(err, &usage) || child != nil {
		return fmt.Errorf("a bad %s: %v, %w", call, child, err)
	}
	return nil
}

// blunderInGroup tries to end the communicator in a group, ends the group twice, and ends it with an inner group open.
func (w *watch) blunderInGroup(ctx context.Context) error {
	g := w.rt.GroupStart(ctx)
	if err := w.c.Destroy(g); lifecycle.CodeOf(err) != lifecycle.CodeInvalidUsage {
		return fmt.Errorf("Destroy in a group: %w", err)
	}
	inner := w.rt.GroupStart(g)
	if err := w.rt.GroupEnd(g); lifecycle.CodeOf(err) != lifecycle.CodeInvalidUsage {
		return fmt.Errorf("GroupEnd before that of the inner group: %w", err)
	}
	if err := errors.Join(w.rt.GroupEnd(inner), w.rt.GroupEnd(g)); err != nil {
		return fmt.Errorf("GroupEnd of an empty group: %w", err)
	}
	if err := w.rt.GroupEnd(g); lifecycle.CodeOf(err) != lifecycle.CodeInvalidUsage {
		return fmt.Errorf("GroupEnd twice: %w", err)
	}
	return nil
}

// call makes a call, and judges the result. It uses a resulting child.
func (w *watch) call(ctx context.Context, call lifecycle.Call) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	before := w.c.State()
	child, err := w.make(within, call)
	after := w.c.State()
	if err == nil || lifecycle.CodeOf(err) == lifecycle.CodeUnfinished && call == lifecycle.CallDestroy {
		switch call {
		case lifecycle.CallFinalize, lifecycle.CallDestroy, lifecycle.CallAbort, lifecycle.CallRevoke:
			w.won[call]++
		default: // nothing prevents others from making it
		}
	}
	if errors.Is(err, ccl.ErrFailed) && len(w.c.Topology().Ranks) == 0 {
		return nil // it was never ready, so there are no ranks to shrink it to, whatever the table says
	}
	if problem := judge(call, before, after, w.life.nonBlocking, within.Err() != nil, err); problem != nil {
		return fmt.Errorf("%s, from %s to %s: %w", call, before, after, problem)
	}
	if child == nil {
		return nil
	}
	w.children = append(w.children, child)
	return w.of(child).use(ctx)
}

// of watches a child. Nothing else uses the child.
func (w *watch) of(child *ccl.Comm) *watch {
	return &watch{life: w.life, rt: w.rt, rank: w.rank, c: child, won: map[lifecycle.Call]int{}}
}

// use waits for a communicator and makes one operation on it.
func (w *watch) use(ctx context.Context) error {
	if err := w.call(ctx, lifecycle.CallWait); err != nil {
		return fmt.Errorf("of a child: %w", err)
	}
	if err := w.call(ctx, lifecycle.CallAllReduce); err != nil {
		return fmt.Errorf("of a child: %w", err)
	}
	return nil
}

// make makes a call. The caller owns a child that it returns.
func (w *watch) make(ctx context.Context, call lifecycle.Call) (*ccl.Comm, error) {
	one, all := []int64{1}, make([]int64, w.c.Size())
	next, previous := (w.rank+1)%w.life.ranks, (w.rank+w.life.ranks-1)%w.life.ranks
	switch call {
	case lifecycle.CallAllReduce:
		return nil, ccl.AllReduce(ctx, w.c, one, make([]int64, 1), ccl.Sum)
	case lifecycle.CallBroadcast:
		return nil, ccl.Broadcast(ctx, w.c, one, one, 0)
	case lifecycle.CallAllGather:
		return nil, ccl.AllGather(ctx, w.c, one, all)
	case lifecycle.CallReduce:
		work := ccl.IReduce(ctx, w.c, one, make([]int64, 1), ccl.Sum, 0)
		<-work.Done()
		return nil, work.Err()
	case lifecycle.CallBarrier:
		return nil, ccl.Barrier(ctx, w.c)
	case lifecycle.CallSendRecv:
		return nil, ccl.SendRecv(ctx, w.c, one, next, make([]int64, 1), previous)
	case lifecycle.CallGroupEnd:
		return nil, w.rt.Group(ctx, func(g *ccl.Group) error {
			for _, err := range []error{
				ccl.Send(g, w.c, one, next), ccl.Recv(g, w.c, make([]int64, 1), previous),
				w.rt.Group(g, func(in *ccl.Group) error {
					return ccl.AllReduce(in, w.c, one, make([]int64, 1), ccl.Sum)
				}),
				ccl.Barrier(g, w.c),
			} {
				if err != nil {
					return err
				}
			}
			return nil
		})
	case lifecycle.CallSplit:
		return w.c.Split(ctx, 0, 0)
	case lifecycle.CallShrink:
		return w.shrink(ctx)
	case lifecycle.CallGrow:
		return w.grow(ctx)
	case lifecycle.CallAsyncError:
		return nil, w.c.AsyncError()
	case lifecycle.CallWait:
		return nil, w.c.Wait(ctx)
	case lifecycle.CallFinalize:
		return nil, w.c.Finalize(ctx)
	case lifecycle.CallDestroy:
		return nil, w.c.Destroy(ctx)
	case lifecycle.CallRevoke:
		return nil, w.c.Revoke(nil)
	default:
		return nil, w.c.Abort(nil)
	}
}

// shrink leaves out the last rank, with ShrinkDefault if the communicator is healthy and with ShrinkAbort otherwise.
// The last rank leaves out the first, with ShrinkAbort.
func (w *watch) shrink(ctx context.Context) (*ccl.Comm, error) {
	mode, without := ccl.ShrinkAbort, w.life.ranks-1
	if w.c.State() == lifecycle.StateReady {
		mode = ccl.ShrinkDefault
	}
	if w.rank == without {
		mode, without = ccl.ShrinkAbort, 0
	}
	return w.c.Shrink(ctx, []int{without}, mode)
}

// grow adds a rank; rank 0 has the id.
func (w *watch) grow(ctx context.Context) (*ccl.Comm, error) {
	var id ccl.UniqueID
	if w.rank == 0 {
		var err error
		if id, err = w.rt.NewUniqueID(); err != nil {
			return nil, err
		}
		w.life.joiners.Go(func() { w.life.join(id) })
	}
	return w.c.Grow(ctx, id, w.life.ranks+1)
}

// join is the rank that a Grow adds. If the others don't arrive, it ends.
func (l *life) join(id ccl.UniqueID) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c, err := l.rts[0].JoinGrow(ctx, id, l.ranks+1, l.ranks)
	if err == nil {
		_ = ccl.AllReduce(ctx, c, []int64{1}, make([]int64, 1), ccl.Sum) // the others report whether it worked
	}
	_ = c.Close()
}
