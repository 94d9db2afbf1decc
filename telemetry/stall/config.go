package stall

import (
	"errors"
	"fmt"
	"time"
)

// Defaults of a Config.
const (
	DefaultSlow        = time.Second
	DefaultFloor       = 5 * time.Second
	DefaultFactor      = 8
	DefaultMaxInterval = time.Minute
)

// Bounds of the thresholds: below, a busy machine's scheduler is what is reported; above, nobody is left to read it.
const (
	MinThreshold = time.Millisecond
	MaxThreshold = 24 * time.Hour
)

// Config says when something is slow and when it stalls. Zero fields take the defaults that they name.
type Config struct {
	// Slow is the age at which an operation or act is reported as Slow, once. What normally takes longer is slow at twice its
	// normal time. At most Floor. 0 means DefaultSlow, or Floor where that is less.
	Slow time.Duration

	// Floor is the least age at which something stalls. 0 means DefaultFloor.
	Floor time.Duration

	// Factor is how many times its normal duration something must take to stall, where that is more than Floor. At least 1;
	// 0 means DefaultFactor.
	Factor float64

	// MaxInterval bounds the time between two reports of one stall, which begins with the threshold and doubles. 0 means
	// DefaultMaxInterval.
	MaxInterval time.Duration
}

// complete fills in the defaults.
func (c Config) complete() Config {
	if c.Floor == 0 {
		c.Floor = DefaultFloor
	}
	if c.Slow == 0 {
		c.Slow = min(DefaultSlow, c.Floor)
	}
	if c.Factor == 0 {
		c.Factor = DefaultFactor
	}
	if c.MaxInterval == 0 {
		c.MaxInterval = DefaultMaxInterval
	}
	return c
}

// Validate names every field that has a value that is not allowed.
func (c Config) Validate() error {
	c = c.complete()
	var errs []error
	for _, field := range []struct {
		name  string
		value time.Duration
	}{{"Slow", c.Slow}, {"Floor", c.Floor}, {"MaxInterval", c.MaxInterval}} {
		if field.value < MinThreshold || field.value > MaxThreshold {
			errs = append(errs, fmt.Errorf("stall.Config.%s is %v: allowed are %v to %v", field.name, field.value, MinThreshold, MaxThreshold))
		}
	}
	if c.Slow > c.Floor {
		errs = append(errs, fmt.Errorf("stall.Config.Slow is %v, more than Floor, %v: something is slow before it stalls", c.Slow, c.Floor))
	}
	if !(c.Factor >= 1 && c.Factor <= 1e6) { // written so that it refuses NaN too
		errs = append(errs, fmt.Errorf("stall.Config.Factor is %v: allowed are 1 to 1e6", c.Factor))
	}
	return errors.Join(errs...)
}
