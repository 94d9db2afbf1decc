package node

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Bounds of the time between two looks at the in-flight table.
const (
	minLook = 5 * time.Millisecond
	maxLook = time.Second // unless the configuration asks for rarer looks
	// lookShare bounds the cost of looking: 1/lookShare of a processor, within the limit of maxLook.
	lookShare = 100
	// slowestSync bounds how long a report waits for the reader of the tape.
	slowestSync = 100 * time.Millisecond
)

// A process that hasn't looked for longer than pauseLooks intervals, leastPause, and half of the stall threshold,
// didn't run. A shorter gap can only make a stall of something that was nearly one before.
const (
	pauseLooks = 4
	leastPause = time.Second
)

// heldUpInterval is the time between two looks for ranks that hold the others up.
const heldUpInterval = time.Second

// stalls looks for slow or stalled operations and acts: one ticker, and one look at the in-flight table for all
// communicators.
type stalls struct {
	watch   *stall.Watch
	every   time.Duration
	pause   time.Duration // the least time without a look that is a pause
	slots   []tape.Slot
	tallies []tape.Tally
	last    int64         // the last look, or the start, on the tape's clock
	delay   time.Duration // how long the process's threads had waited for a processor by then
	heldAt  int64         // the last look for ranks that hold the others up
	heldUp  bool          // whether there were any
}

// seen is the result of a look.
type seen struct {
	stuck  []lifecycle.CommID // communicators in which something takes too long
	heldUp bool               // operations repeatedly wait for one rank, or may
}

// newStalls makes stalls; nil if the stall threshold is off.
func newStalls(cfg *settings, observed *model.Process) *stalls {
	if cfg.StallThreshold == 0 {
		return nil
	}
	return &stalls{
		watch: stall.New(observed), every: max(cfg.slow()/4, minLook), pause: max(leastPause, cfg.StallThreshold/2),
		last: tape.Now(), delay: process.RunDelay(),
	}
}

// limits are the thresholds of slow and stalled.
func (c *Config) limits() model.Limits {
	if c.StallThreshold == 0 {
		return model.Limits{}
	}
	return model.Limits{Slow: c.slow(), Floor: c.StallThreshold}
}

// slow is the age at which something is announced as slow; the stall threshold if nothing is to be announced earlier.
func (c *Config) slow() time.Duration {
	if c.SlowThreshold == 0 || c.SlowThreshold > c.StallThreshold && c.StallThreshold > 0 {
		return c.StallThreshold
	}
	return c.SlowThreshold
}

// kept is the duration from which an operation's span is kept.
func (c *Config) kept() time.Duration {
	if slow := c.slow(); slow > 0 {
		return slow
	}
	return math.MaxInt64
}

// lookForStalls looks until ctx ends or, if the tape is another process's, until that process ends: nothing can stall
// in it any more.
func (t *Telemetry) lookForStalls(ctx context.Context) {
	s := t.stalls
	timer := time.NewTimer(s.every)
	defer timer.Stop()
	interval := s.every
	var over <-chan struct{}
	if t.own == nil {
		over = t.done
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-over:
			t.seen.Store(&seen{})
			return
		case <-timer.C:
		}
		start := time.Now()
		t.look(interval)
		interval = max(s.every, min(lookShare*time.Since(start), maxLook))
		timer.Reset(untilLook(interval))
	}
}

// untilLook is a random time until the next look, an interval on average. A program's steps may have the same period:
// the looks must not always hit the same point of a step.
func untilLook(interval time.Duration) time.Duration { return interval/2 + rand.N(interval) }

// look looks once, an interval after the last look.
func (t *Telemetry) look(interval time.Duration) {
	s, now := t.stalls, tape.Now()
	t.own.Saw(now)
	var err error
	if s.slots, err = t.follower.AppendSlots(s.slots[:0]); err != nil && len(s.slots) == 0 { // given up
		t.seen.Store(&seen{})
		return
	}
	s.tallies, _ = t.follower.AppendTallies(s.tallies[:0])
	var delay time.Duration
	if t.own != nil {
		delay = process.RunDelay() // it reads a file for each thread
	}
	t.observing.Lock()
	defer t.observing.Unlock()
	if t.own != nil {
		if now-s.last > int64(max(pauseLooks*interval, s.pause)) {
			t.resumedAt(s.last, now, max(delay-s.delay, 0)) // the times of threads that ended are gone
		}
		s.delay = delay
	}
	s.last = now
	t.process.Look(s.slots, s.tallies)
	t.process.Watch(now)
	reports := s.watch.Check(now)
	if len(reports) > 0 {
		// The caller of a slow operation is only on the ring, and may not have been read yet.
		t.observing.Unlock()
		t.sync(context.Background(), slowestSync)
		t.readHeader()
		t.observing.Lock()
	}
	for i := range reports {
		r := &reports[i]
		for _, o := range t.observers {
			if o.Stall != nil {
				o.Stall(r)
			}
		}
	}
	if t.ras == nil {
		return
	}
	if now-s.heldAt >= int64(heldUpInterval) {
		s.heldAt, s.heldUp = now, verdict.AnyHeldUp(t.process, now)
	}
	late := stuck(t.process, now)
	doubtful, news := s.watch.Doubtful(now)
	for _, c := range doubtful {
		late = append(late, c.ID)
	}
	t.seen.Store(&seen{late, s.heldUp})
	if news || slices.ContainsFunc(reports, stall.Report.News) {
		t.ras.agent.Trouble()
	}
}

// devices returns what is known about devices; see model.Process.Devices.
func (t *Telemetry) devices() map[uint32]model.Device {
	t.observing.Lock()
	defer t.observing.Unlock()
	return t.process.Devices()
}

// resumed notes that the process runs again, after it had not since paused.
func (t *Telemetry) resumed(paused int64) {
	t.observing.Lock()
	defer t.observing.Unlock()
	t.resumedAt(paused, tape.Now(), 0)
}

func (t *Telemetry) resumedAt(paused, now int64, starved time.Duration) {
	t.process.Resumed(paused, now)
	t.tape.Resumed(paused, now, starved)
}

// stuck returns the communicators in which something takes too long.
func stuck(p *model.Process, now int64) (stuck []lifecycle.CommID) {
	for _, c := range p.Late(now) {
		for a := range c.Activities() {
			if p.Stalled(a, now) {
				stuck = append(stuck, c.ID)
				break
			}
		}
	}
	return stuck
}
