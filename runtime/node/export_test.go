package node

import (
	"context"
	"time"
)

// Known are the names of Carillon's variables; Unknown says which others look like them. UntilLook is the time until
// the next look for stalls.
var (
	Known   = known
	Unknown = unknown

	UntilLook = untilLook
)

// WithTick sets how late readers of the process's tape may get an operation.
func WithTick(d time.Duration) Option {
	return func(c *Config) error {
		c.tick = d
		return nil
	}
}

// WithScan sets how often an agent looks for new tapes.
func WithScan(d time.Duration) Option {
	return func(c *Config) error {
		c.scan = d
		return nil
	}
}

// Sync waits until everything on the tape now has been read.
func (t *Telemetry) Sync(ctx context.Context) error { return t.follower.Sync(ctx) }

// Flush sends the spans that were made, if they are sent at all.
func (t *Telemetry) Flush(ctx context.Context) error { return t.trace.Flush(ctx) }
