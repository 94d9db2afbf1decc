package node

import (
	"context"
	"math"
	"time"

	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// StallObserver is an Observer that is also told what is slow or stalled, and what is not any more. It is never called
// at the same time as Observe. It must not keep the report.
type StallObserver interface {
	ObserveStall(r *stall.Report)
}

// Bounds of the time between two looks at the in-flight table.
const (
	minLook = 5 * time.Millisecond
	// lookShare bounds what looking costs: one part in so many of a processor, however many communicators there are.
	lookShare = 100
	// slowestSync bounds how long a report waits for the reader of the tape.
	slowestSync = 100 * time.Millisecond
)

// stalls looks for what is slow or stalled: one ticker, and one look at the in-flight table for all communicators.
type stalls struct {
	watch     *stall.Watch
	observers []StallObserver
	every     time.Duration
	slots     []tape.Slot
	tallies   []tape.Tally
	reports   []stall.Report
	stop      chan struct{}
	done      chan struct{}
}

// newStalls makes what tells those of the observers that are StallObservers; nil if nothing is looked for.
func newStalls(cfg *settings, observers []Observer) (*stalls, error) {
	if cfg.StallThreshold == 0 {
		return nil, nil //nolint:nilnil // nil is switched off
	}
	slow := cfg.slow()
	w, err := stall.New(stall.Config{Slow: slow, Floor: cfg.StallThreshold})
	if err != nil {
		return nil, err
	}
	s := &stalls{watch: w, every: max(slow/4, minLook), stop: make(chan struct{}), done: make(chan struct{})}
	for _, o := range observers {
		if o, ok := o.(StallObserver); ok {
			s.observers = append(s.observers, o)
		}
	}
	return s, nil
}

// slow is the age at which something is announced as slow: with what stalls, where nothing is to be slow before.
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

// lookForStalls looks until it is stopped.
func (t *Telemetry) lookForStalls() {
	s := t.stalls
	defer close(s.done)
	timer := time.NewTimer(s.every)
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-timer.C:
		}
		start := time.Now()
		t.look()
		timer.Reset(max(s.every, lookShare*time.Since(start)))
	}
}

// look looks once.
func (t *Telemetry) look() {
	s := t.stalls
	t.tape.Saw(tape.Now())
	s.slots, _ = t.follower.AppendSlots(s.slots[:0]) // what can't be read is left out
	s.tallies, _ = t.follower.AppendTallies(s.tallies[:0])
	t.observing.Lock()
	defer t.observing.Unlock()
	s.watch.Learn(s.tallies)
	if s.reports = s.watch.Check(s.slots, tape.Now(), s.reports[:0]); len(s.reports) == 0 {
		return
	}
	// The caller of what is slow is on the ring alone, and may not have been read yet.
	t.observing.Unlock()
	t.sync(context.Background(), slowestSync)
	t.readHeader()
	t.observing.Lock()
	for i := range s.reports {
		for _, o := range s.observers {
			o.ObserveStall(&s.reports[i])
		}
	}
}

// end stops looking, and waits until it has.
func (s *stalls) end() {
	if s == nil {
		return
	}
	close(s.stop)
	<-s.done
}
