//go:build !linux

// Package futex stands in for futexes where there are none: waiters poll.
package futex

import "time"

// All makes Wake wake every waiter.
const All = 1<<31 - 1

// moment is how long Wait sleeps at most.
const moment = time.Millisecond

// Wait sleeps for a moment: the caller checks again.
func Wait(_ *uint32, _ uint32, limit time.Duration) error {
	time.Sleep(min(limit, moment))
	return nil
}

// Wake does nothing, as waiters poll.
func Wake(*uint32, int) error { return nil }
