package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
)

// worlds makes a world whose ranks are goroutines.
func worlds(t *testing.T, n int) []*ccl.Comm {
	t.Helper()
	rt, err := ccl.New(ccl.Config{Engine: host.Kind()})
	if err != nil {
		t.Fatal(err)
	}
	comms, err := rt.InitAll(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range comms {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return comms
}

func TestAllCatchUpWithTheFurthest(t *testing.T) {
	for name, tc := range map[string]struct {
		steps, epochs []int
		furthest      int
	}{
		"at the beginning": {[]int{0, 0, 0}, []int{0, 0, 0}, 0},
		"a step ahead":     {[]int{30, 31, 30}, []int{1, 1, 1}, 1},
		"an epoch ahead":   {[]int{46, 46, 46}, []int{1, 1, 2}, 2},
		"the lowest":       {[]int{46, 47, 47}, []int{1, 2, 2}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var wg sync.WaitGroup
			trainers := make([]*trainer, 3)
			for rank, world := range worlds(t, 3) {
				s := defaults
				s.seed = uint64(rank)
				r := newTrainer(s, nil, nil)
				r.steps, r.epoch, r.loss, r.seen = tc.steps[rank], tc.epochs[rank], 7, 64
				r.velocity[0], r.velocity[numParams-1] = float32(rank), float32(-rank)
				trainers[rank] = r
				wg.Go(func() {
					if err := catchUp(t.Context(), world, r); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			want := newModel(uint64(tc.furthest)).params
			for rank, r := range trainers {
				if r.steps != tc.steps[tc.furthest] || r.epoch != tc.epochs[tc.furthest] {
					t.Errorf("rank %d goes on in epoch %d from step %d", rank, r.epoch, r.steps)
				}
				if !slices.Equal(r.model.params, want) || r.velocity[0] != float32(tc.furthest) ||
					r.velocity[numParams-1] != float32(-tc.furthest) {
					t.Errorf("rank %d has not the weights and velocities of rank %d", rank, tc.furthest)
				}
				if kept := r.seen != 0; kept != (tc.epochs[rank] == tc.epochs[tc.furthest]) {
					t.Errorf("rank %d has a loss of %g from %g samples", rank, r.loss, r.seen)
				}
			}
		})
	}
}

func TestFailureThatNobodyDiedOfEndsTheWork(t *testing.T) {
	cause := errors.New("disk full")
	s := &survivors{first: worlds(t, 2)[0], left: attempts}
	if world, err := s.shrink(t.Context(), cause); world != nil || !errors.Is(err, cause) {
		t.Errorf("%v, %v; want the cause", world, err)
	}
	s = &survivors{first: s.first}
	if world, err := s.shrink(t.Context(), cause); world != nil || !errors.Is(err, cause) {
		t.Errorf("%v, %v; want the cause after the last attempt", world, err)
	}
}
