package bus

import (
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Defaults of a Config.
const (
	DefaultHistory = 1024
	DefaultQueue   = 256
	DefaultWindow  = 10 * time.Second
	DefaultLinger  = 2 * time.Second
)

// The largest values that a Config allows.
const (
	MaxHistory = 1 << 20
	MaxQueue   = 1 << 20
	MaxWindow  = time.Hour
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
	// Queue is how many events wait for a subscriber that asks for no other number. 0 means DefaultQueue.
	Queue int
	// Window is how long events like the one before them are folded. 0 means DefaultWindow.
	Window time.Duration
	// Linger is how long a symptom is still held back when its cause has closed: what the cause explained ends a moment
	// later. 0 means DefaultLinger.
	Linger time.Duration
}

func (c Config) complete() Config {
	if c.Source == "" {
		c.Source = "carillon"
	}
	if c.History == 0 {
		c.History = DefaultHistory
	}
	if c.Queue == 0 {
		c.Queue = DefaultQueue
	}
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.Linger == 0 {
		c.Linger = DefaultLinger
	}
	return c
}

// Validate names every field that has a value that is not allowed.
func (c Config) Validate() error {
	c = c.complete()
	var errs []error
	if _, err := url.Parse(c.Source); err != nil {
		errs = append(errs, fmt.Errorf("bus.Config.Source is %q: allowed is a URI reference", c.Source))
	}
	if c.History < 1 || c.History > MaxHistory {
		errs = append(errs, fmt.Errorf("bus.Config.History is %d: allowed are 1 to %d", c.History, MaxHistory))
	}
	if c.Queue < 1 || c.Queue > MaxQueue {
		errs = append(errs, fmt.Errorf("bus.Config.Queue is %d: allowed are 1 to %d", c.Queue, MaxQueue))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Window", c.Window}, {"Linger", c.Linger}} {
		if d.value < time.Millisecond || d.value > MaxWindow {
			errs = append(errs, fmt.Errorf("bus.Config.%s is %v: allowed are 1ms to %v", d.name, d.value, MaxWindow))
		}
	}
	return errors.Join(errs...)
}
