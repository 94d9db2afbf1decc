package main

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

var mistakes = []mistake{
	{
		title: "Destroyed twice", make: destroyedTwice, span: semconv.SpanDestroy,
		why: "A destructor and an explicit call, in C, read freed memory: an invalid argument today, a crash tomorrow.",
	},
	{
		title: "Used after Destroy", make: usedAfterDestroy, span: "ccl.barrier",
		why: "A step that still runs while the job shuts down must not touch the memory of a dead communicator.",
	},
	{
		title: "Used after Finalize", make: usedAfterFinalize, span: "ccl.barrier",
		why: "Finalize promises the other ranks that nothing more will come.",
	},
	{
		title: "Used after Abort", make: usedAfterAbort, span: "ccl.barrier",
		why: "Who comes after an abort wants to know who aborted, where and why, not that a socket is closed.",
	},
	{
		title: "Destroyed too early", make: destroyedTooEarly, span: semconv.SpanDestroy,
		why: "Operations are in flight and will not end: Destroy waits as long as its context, then says for " +
			"what it waited.",
	},
	{
		title: "Never destroyed: nobody holds it any more", make: leaked, span: semconv.SpanLeak,
		why: "A leaked communicator keeps memory, sockets and goroutines, and its other ranks wait for it.",
	},
	{
		title: "Never destroyed: the runtime stops", make: leftAlive, span: semconv.SpanLeak, leave: true,
		why: "At the end of the job it is too late for an error, but not for a report that names who made it.",
	},
	{
		title: "Destroyed by several at once", make: raced, span: semconv.SpanDestroy,
		why: "Exactly one wins; all others learn which. Note ccl.comm.shared_goroutines on the span.",
	},
	{
		title: "Split while a group job is unfinished", make: splitInProgress, span: semconv.SpanSplit,
		opts: []ccl.Option{ccl.NonBlocking()},
		why: "NCCL completed the job at the wrong time here, and crashed later, elsewhere. The answer is: " +
			"not yet. It is no error.",
	},
	{
		title: "GroupEnd twice", make: endedTwice, span: semconv.SpanGroup,
		why: "In C the depth of the thread's group is wrong from here on, and some other group never ends.",
	},
	{
		title: "A group left open", make: leftOpen, span: semconv.SpanGroup,
		why: "Its calls are never made, and the other ranks wait for them.",
	},
	{
		title: "A group that fails half way", make: failsHalfWay, span: semconv.SpanGroup,
		why: "Some of its calls took effect: which ones decides what can be saved.",
	},
	{
		title: "No communicator at all", make: destroyedNil,
		why: "A rank that passes NoColor to Split gets nil. There is no communicator, so no span tells of its calls.",
	},
	{
		title: "A rank that there is not", make: wrongRank, span: semconv.SpanInit,
		why: "The other ranks wait for the one that it should have been. Its span links to the trace of their init.",
	},
	{
		title: "A color that is none", make: wrongColor, span: semconv.SpanSplit,
		why: "A typo in a color must not become a communicator of its own.",
	},
	{
		title: "Ranks that disagree", make: mismatched, span: semconv.SpanFailure,
		why: "Elsewhere this is a hang, or a wrong sum. Here every rank says which call differs, and of which rank.",
	},
}

func destroyedTwice(ctx context.Context, j *job) error {
	if err := j.world[0].Destroy(ctx); err != nil {
		return err
	}
	return j.world[0].Destroy(ctx)
}

func usedAfterDestroy(ctx context.Context, j *job) error {
	if err := j.world[0].Destroy(ctx); err != nil {
		return err
	}
	return ccl.Barrier(ctx, j.world[0])
}

func usedAfterFinalize(ctx context.Context, j *job) error {
	if err := j.world[0].Finalize(ctx); err != nil {
		return err
	}
	return ccl.Barrier(ctx, j.world[0])
}

func usedAfterAbort(ctx context.Context, j *job) error {
	if err := j.world[0].Abort(errors.New("the loss is NaN")); err != nil {
		return err
	}
	return ccl.Barrier(ctx, j.world[0])
}

func destroyedTooEarly(ctx context.Context, j *job) error {
	gradients := []float32{1, 2, 3}
	ccl.IAllReduce(ctx, j.world[0], gradients, gradients, ccl.Sum) // rank 1 never comes
	if err := j.untilItWaits(ctx); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	return j.world[0].Destroy(soon)
}

func leaked(ctx context.Context, j *job) error {
	if _, err := j.Runtime().World(ctx, ccl.WithName("forgotten")); err != nil {
		return err
	}
	return j.collectUntil(ctx, semconv.SpanLeak)
}

func leftAlive(context.Context, *job) error { return nil }

func raced(ctx context.Context, j *job) error {
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { errs[i] = j.world[0].Destroy(ctx) })
	}
	wg.Wait()
	return cmp.Or(errs...)
}

func splitInProgress(ctx context.Context, j *job) error {
	meet := func(rank int) error {
		return j.Runtime().Group(ctx, func(g *ccl.Group) error { return ccl.Barrier(g, j.world[rank]) })
	}
	if err := meet(0); !errors.Is(err, ccl.ErrInProgress) { // its communicator is non-blocking
		return err
	}
	_, answer := j.world[0].Split(ctx, 0, 0)
	if err := meet(1); !errors.Is(err, ccl.ErrInProgress) {
		return err
	}
	return errors.Join(answer, j.world[0].Wait(ctx), j.world[1].Wait(ctx)) // now it could be split
}

func endedTwice(ctx context.Context, j *job) error {
	g := j.Runtime().GroupStart(ctx)
	for _, c := range j.world {
		if err := ccl.Barrier(g, c); err != nil {
			return err
		}
	}
	if err := j.Runtime().GroupEnd(g); err != nil {
		return err
	}
	return j.Runtime().GroupEnd(g)
}

func leftOpen(ctx context.Context, j *job) error {
	if err := ccl.Barrier(j.Runtime().GroupStart(ctx), j.world[0]); err != nil {
		return err
	}
	return j.collectUntil(ctx, semconv.SpanGroup)
}

func failsHalfWay(ctx context.Context, j *job) error {
	return j.Runtime().Group(ctx, func(g *ccl.Group) error {
		for rank, c := range j.world {
			weights := make([]float32, 4+rank) // the ranks disagree about its length
			if err := errors.Join(ccl.Barrier(g, c), ccl.AllReduce(g, c, weights, weights, ccl.Sum),
				ccl.Barrier(g, c)); err != nil {
				return err
			}
		}
		return nil
	})
}

func destroyedNil(ctx context.Context, _ *job) error {
	var none *ccl.Comm
	return none.Destroy(ctx)
}

func wrongRank(ctx context.Context, j *job) error {
	id, err := j.Runtime().NewUniqueID()
	if err != nil {
		return err
	}
	_, err = j.Runtime().InitRank(ctx, id, 2, 2, ccl.WithName("pair"))
	return err
}

func wrongColor(ctx context.Context, j *job) error {
	_, err := j.world[0].Split(ctx, -7, 0)
	return err
}

func mismatched(ctx context.Context, j *job) error {
	calls := []func() error{
		func() error { return ccl.Barrier(ctx, j.world[0]) },
		func() error { return ccl.Broadcast(ctx, j.world[1], []int64{7}, []int64{7}, 1) },
	}
	var wg sync.WaitGroup
	errs := make([]error, len(calls))
	for rank, call := range calls {
		wg.Go(func() { errs[rank] = call() })
	}
	wg.Wait()
	return cmp.Or(errs...)
}

func (j *job) untilItWaits(ctx context.Context) error {
	waits := func(s tape.Slot) bool { return s.Wait >= 0 }
	for !slices.ContainsFunc(j.Telemetry().Slots(), waits) && ctx.Err() == nil {
		runtime.Gosched()
	}
	return ctx.Err()
}

// collectUntil runs the garbage collector, which finds leaked communicators, until there is a failed span of that name.
// In a real program, the collector runs on its own.
func (j *job) collectUntil(ctx context.Context, name string) error {
	for len(failures(j.Telemetry().Traces(), name)) == 0 && ctx.Err() == nil {
		runtime.GC()
	}
	return ctx.Err()
}
