//go:build !linux

package tape

import "time"

// bellPoll is how often the bell is looked at where there are no futexes.
const bellPoll = 5 * time.Millisecond

// futexWait sleeps a moment: the caller looks again.
func futexWait(_ *uint32, _ uint32, limit time.Duration) error {
	time.Sleep(min(limit, bellPoll))
	return nil
}

// futexWake wakes nobody: those who wait look again.
func futexWake(*uint32) error { return nil }
