package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
)

func TestDestroyedTwice(t *testing.T) {
	inProcess(t, 2, func(ctx context.Context, c *ccl.Comm) error {
		if err := c.Destroy(ctx); err != nil {
			return err
		}
		for range 3 {
			err := c.Destroy(ctx)
			var usage *ccl.UsageError
			if !errors.Is(err, ccl.ErrDestroyed) || !errors.As(err, &usage) {
				return fmt.Errorf("second Destroy: %w", err)
			}
			if !strings.Contains(usage.First.File, "failure_test.go") ||
				!strings.Contains(err.Error(), "failure_test.go") {
				return fmt.Errorf("the error does not say where the first Destroy was: %w", err)
			}
		}
		buf := []float32{1}
		if err := ccl.AllReduce(ctx, c, buf, buf, ccl.Sum); !errors.Is(err, ccl.ErrDestroyed) {
			return fmt.Errorf("AllReduce after Destroy: %w", err)
		}
		if err := c.Close(); err != nil {
			return fmt.Errorf("Close after Destroy: %w", err)
		}
		return nil
	})
}

func TestMismatchOnEveryRank(t *testing.T) {
	inProcess(t, 4, func(ctx context.Context, c *ccl.Comm) error {
		n := 10
		if c.Rank() == 2 {
			n = 11
		}
		send, recv := make([]float32, n), make([]float32, n)
		for i := range recv {
			recv[i] = 42
		}
		err := ccl.AllReduce(ctx, c, send, recv, ccl.Sum)
		var peer *ccl.PeerError
		if !errors.Is(err, ccl.ErrMismatch) || !errors.As(err, &peer) {
			return fmt.Errorf("%w, want a mismatch", err)
		}
		for _, part := range []string{"count", "10", "11", "2"} {
			if !strings.Contains(err.Error(), part) {
				return fmt.Errorf("the error does not say %q: %w", part, err)
			}
		}
		for i := range recv {
			if recv[i] != 42 {
				return fmt.Errorf("recv[%d] was written", i)
			}
		}
		if err := ccl.Barrier(ctx, c); !errors.Is(err, ccl.ErrFailed) {
			return fmt.Errorf("Barrier after it: %w, want ErrFailed", err)
		}
		return c.Destroy(ctx)
	})
}

func TestContextEndsInsideAnOperation(t *testing.T) {
	comms, err := newRuntime(t, ccl.Config{}).InitAll(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
		switch c.Rank() {
		case 0: // gives up
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			err := ccl.Barrier(ctx, c)
			if !errors.Is(err, ccl.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), "rank 2") {
				return fmt.Errorf("%w, want a timeout that names rank 2", err)
			}
		case 1: // is told
			err := ccl.Barrier(ctx, c)
			var peer *ccl.PeerError
			if !errors.Is(err, ccl.ErrAbandoned) || !errors.As(err, &peer) || peer.Rank != 0 {
				return fmt.Errorf("%w, want that rank 0 abandoned it", err)
			}
		case 2: // never makes the call, and finds out
			for {
				if err := c.AsyncError(); err != nil {
					if !errors.Is(err, ccl.ErrAbandoned) {
						return err
					}
					return nil
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
		}
		return nil
	})
}

func TestAbortFreesTheOthers(t *testing.T) {
	comms, err := newRuntime(t, ccl.Config{}).InitAll(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	each(t, comms, func(ctx context.Context, c *ccl.Comm) error {
		switch c.Rank() {
		case 0: // waits in the operation
			if err := ccl.AllReduce(ctx, c, []float64{1}, make([]float64, 1), ccl.Sum); !errors.Is(err,
				ccl.ErrPeerAborted) {
				return fmt.Errorf("%w, want that rank 1 aborted", err)
			}
		case 1: // aborts in the middle of it
			w := ccl.IAllReduce(ctx, c, []float64{1}, make([]float64, 1), ccl.Sum)
			if err := c.Abort(errors.New("loss is NaN")); err != nil {
				return err
			}
			if err := w.Wait(ctx); !errors.Is(err, ccl.ErrAborted) {
				return fmt.Errorf("the aborted operation: %w", err)
			}
		case 2: // never makes the call, so that it can't succeed, and finds out
			for c.AsyncError() == nil && ctx.Err() == nil {
				runtime.Gosched()
			}
			if err := c.AsyncError(); !errors.Is(err, ccl.ErrPeerAborted) {
				return fmt.Errorf("%w, want that rank 1 aborted", err)
			}
		}
		return nil
	})
}

func TestDestroyWithOperationsInFlight(t *testing.T) {
	comms, err := newRuntime(t, ccl.Config{}).InitAll(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	buf := []float32{1}
	w := ccl.IAllReduce(t.Context(), comms[0], buf, buf, ccl.Sum)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = comms[0].Destroy(ctx)
	if lifecycle.CodeOf(err) != lifecycle.CodeUnfinished || !strings.Contains(err.Error(), "all_reduce") ||
		!strings.Contains(err.Error(), "rank 1") {
		t.Errorf("Destroy = %v, want one that names the all_reduce and rank 1", err)
	}
	if err := w.Wait(t.Context()); err == nil {
		t.Error("the operation succeeded without the other rank")
	}
	runtime.KeepAlive(comms) // otherwise the other rank would be aborted, as its handle is unreachable
}

func TestBadArguments(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	comms, err := rt.InitAll(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	c, ctx := comms[0], t.Context()
	f := make([]float32, 10)
	cases := map[string]struct {
		err  error
		says []string
	}{
		"nranks":       {second(rt.InitRank(ctx, id, 0, 0)), []string{"nranks is 0"}},
		"rank":         {second(rt.InitRank(ctx, id, 2, 2)), []string{"rank is 2", "0 to 1"}},
		"unique id":    {second(rt.InitRank(ctx, ccl.UniqueID{}, 2, 1)), []string{"unique id"}},
		"n":            {second(rt.InitAll(ctx, -1)), []string{"n is -1"}},
		"root":         {ccl.Broadcast(ctx, c, f, f, 2), []string{"root 2", "0 to 1"}},
		"peer":         {ccl.Send(ctx, c, f, -3), []string{"peer -3"}},
		"recv":         {ccl.AllReduce(ctx, c, f, f[:9], ccl.Sum), []string{"recv has 9", "must have 10"}},
		"short gather": {ccl.AllGather(ctx, c, f[:5], make([]float32, 9)), []string{"recv has 9", "must have 10"}},
		"overlap":      {ccl.AllReduce(ctx, c, f[:8], f[2:], ccl.Sum), []string{"overlap", "same slice"}},
		"in place":     {ccl.AllGather(ctx, c, f[5:], f), []string{"overlap", "elements 0 to 4"}},
		"all to all":   {ccl.AllToAll(ctx, c, f[:5], make([]float32, 5)), []string{"multiple of 2"}},
		"reduction":    {ccl.AllReduce(ctx, c, f, f, ccl.Reduction(77)), []string{"77"}},
		"no scale":     {ccl.AllReduce(ctx, c, f, f, ccl.PreMulSum), []string{"Scale"}},
		"scale":        {ccl.AllReduce(ctx, c, f, f, ccl.Sum, ccl.Scale(2)), []string{"Scale"}},
		"color":        {second(c.Split(ctx, -5, 0)), []string{"color is -5", "NoColor"}},
		"nil":          {ccl.Barrier(ctx, nil), []string{"nil", "NoColor"}},
		"nil destroy":  {(*ccl.Comm)(nil).Destroy(ctx), []string{"nil"}},
		"nil group":    {rt.GroupEnd(nil), []string{"GroupStart"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var usage *ccl.UsageError
			if !errors.As(tc.err, &usage) {
				t.Fatalf("%v, want a UsageError", tc.err)
			}
			for _, part := range tc.says {
				if !strings.Contains(tc.err.Error(), part) {
					t.Errorf("%q does not say %q", tc.err, part)
				}
			}
		})
	}
	// Nothing happened: the communicator still works.
	each(t,
		comms, func(ctx context.Context, c *ccl.Comm) error { return errors.Join(ccl.Barrier(ctx, c), c.Destroy(ctx)) })
}

func second[T any](_ T, err error) error { return err }

func TestMissingRankIsNamed(t *testing.T) {
	rt := newRuntime(t, ccl.Config{})
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = rt.InitRank(ctx, id, 3, 1)
	if !errors.Is(err, ccl.ErrNotJoined) || !strings.Contains(err.Error(), "ranks 0 and 2 have not arrived") {
		t.Errorf("%v, want that ranks 0 and 2 have not arrived", err)
	}
	if n := rt.Live(); n != 0 {
		t.Errorf("%d communicators are left", n)
	}
}
