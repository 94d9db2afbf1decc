package bus

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Defaults of a Config.
const (
	DefaultHistory = 1024
	DefaultQueue   = 256
)

// MaxQueue is the largest History and the largest Queue.
const MaxQueue = 1 << 20

const (
	// window is how long events like the one before them are folded.
	window = 10 * time.Second
	// linger is how long a symptom is still held back when its cause has closed: what the cause explained ends a moment
	// later.
	linger = 2 * time.Second
)

// Config describes a Bus. Zero fields take the defaults that they name.
type Config struct {
	// Source is the Source of events that have none, a URI reference that tells this process from others:
	// "/jobs/train/ranks/3". Default: "carillon".
	Source string
	// Job is the job's name, on every event.
	Job string
	// History is how many events are remembered for those who resume. 0 means DefaultHistory.
	History int
	// Queue is how many events wait for a subscriber, beside what it resumes. 0 means DefaultQueue.
	Queue int
}

func (c Config) complete() Config {
	c.Source = cmp.Or(c.Source, "carillon")
	c.History = cmp.Or(c.History, DefaultHistory)
	c.Queue = cmp.Or(c.Queue, DefaultQueue)
	return c
}

// Validate names every field that has a value that is not allowed.
func (c Config) Validate() error {
	c = c.complete()
	var errs []error
	if _, err := url.Parse(c.Source); err != nil {
		errs = append(errs, fmt.Errorf("bus.Config.Source is %q: allowed is a URI reference", c.Source))
	}
	if c.History < 1 || c.History > MaxQueue {
		errs = append(errs, fmt.Errorf("bus.Config.History is %d: allowed are 1 to %d", c.History, MaxQueue))
	}
	if c.Queue < 1 || c.Queue > MaxQueue {
		errs = append(errs, fmt.Errorf("bus.Config.Queue is %d: allowed are 1 to %d", c.Queue, MaxQueue))
	}
	return errors.Join(errs...)
}
