package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/runtime/ccl"
)

const (
	// patience is how long a rank waits for the others to make a smaller world. Ranks notice a death within
	// milliseconds of each other, so a rank that does not come has died itself, or has seen other deaths.
	patience = 5 * time.Second
	// attempts bounds the consecutive attempts without a completed step.
	attempts = 10
	// notice is how long after a failure a death may become known, before the failure is attributed to something else.
	notice = time.Second
)

// survivors are the ranks that are left of the first world.
//
// Every smaller world is made from the first one, never from the previous one. So it doesn't matter that ranks learn of
// a death at different points, one while the smaller world is being made, another after a step in it: all ranks return
// to the first world, count its shrinks alike, and meet at the next smaller world.
type survivors struct {
	first *ccl.Comm
	lost  []int // the dead ranks of first, ascending
	told  []int // the dead ranks that were reported
	steps int   // at the last progress
	left  int   // how many attempts are left until the next progress
}

// outlive works with the ranks of first and, each time that some of them die, with those that are left.
func (j *job) outlive(ctx context.Context, first *ccl.Comm) error {
	s := &survivors{first: first, left: attempts}
	world := first
	for {
		err := j.work(ctx, world, func() { s.tell(world, j.trainer) })
		if err == nil && world != first {
			return first.Destroy(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		s.learn(ctx, world)
		if world != first {
			_ = world.Abort(err) // some ranks may be waiting in it
		}
		if j.trainer.steps > s.steps {
			s.steps, s.left = j.trainer.steps, attempts
		}
		if world, err = s.shrink(ctx, err); err != nil {
			return err
		}
	}
}

// shrink makes a world of the living ranks. If a rank dies meanwhile, or has seen a death that others have not seen,
// shrink tries again. cause is the failure that made it necessary; it is also the error if no rank died.
func (s *survivors) shrink(ctx context.Context, cause error) (*ccl.Comm, error) {
	for ; s.left > 0; s.left-- {
		if err := s.look(ctx); err != nil {
			return nil, errors.Join(cause, err)
		}
		if len(s.lost) == 0 {
			return nil, cause
		}
		within, cancel := context.WithTimeout(ctx, patience)
		world, err := s.first.Shrink(within, s.lost, ccl.ShrinkAbort, ccl.WithName("world"))
		cancel()
		if err == nil {
			return world, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		cause = err
	}
	return nil, fmt.Errorf("gave up after %d attempts to go on: %w", attempts, cause)
}

// look finds out which ranks are dead. A failure may become known before the death that caused it.
func (s *survivors) look(ctx context.Context) error {
	tick := time.NewTicker(notice / 100)
	defer tick.Stop()
	for began := time.Now(); ; {
		lost, err := s.first.Lost(ctx)
		if err != nil {
			return err
		}
		s.markDead(lost)
		if len(s.lost) > 0 || time.Since(began) > notice {
			return nil
		}
		<-tick.C
	}
}

// learn adds the deaths that a smaller world has recorded.
func (s *survivors) learn(ctx context.Context, world *ccl.Comm) {
	if world == s.first {
		return
	}
	lost, err := world.Lost(ctx)
	if err != nil {
		return // the first world will report them
	}
	living := s.living()
	for i, rank := range lost {
		lost[i] = living[rank]
	}
	s.markDead(lost)
}

// living returns the ranks of the first world that are not known to be dead, in the order of the last world.
func (s *survivors) living() []int {
	var living []int
	for rank := range s.first.Size() {
		if !slices.Contains(s.lost, rank) {
			living = append(living, rank)
		}
	}
	return living
}

func (s *survivors) markDead(ranks []int) {
	s.lost = append(s.lost, ranks...)
	slices.Sort(s.lost)
	s.lost = slices.Compact(s.lost)
}

// tell prints which ranks have died since the last call, and where the others continue.
func (s *survivors) tell(world *ccl.Comm, t *trainer) {
	news := slices.DeleteFunc(slices.Clone(s.lost), func(rank int) bool { return slices.Contains(s.told, rank) })
	s.told = slices.Clone(s.lost)
	if len(news) == 0 || world.Rank() != 0 {
		return
	}
	fmt.Printf("%s died in epoch %d; %s %s on from step %d\n",
		words.Ranks(news), min(t.epoch+1, t.epochs), english.Plural(world.Size(), "rank", ""),
		english.PluralWord(world.Size(), "goes", "go"), t.steps)
}
