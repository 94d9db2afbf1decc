//go:build !linux

package tape

import "time"

// bellPoll is the interval at which the bell is read where there are no futexes.
const bellPoll = 5 * time.Millisecond

// futexWait sleeps for a moment: the caller reads the bell again.
func futexWait(_ *uint32, _ uint32, limit time.Duration) error {
	time.Sleep(min(limit, bellPoll))
	return nil
}

// futexWake does nothing, as waiters poll.
func futexWake(*uint32) error { return nil }
