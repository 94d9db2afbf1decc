package job

import (
	"errors"
	"io/fs"
	"time"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// ledger is the job's process.Ledger, beside the tapes. Errors are ignored: the job can run without it.
type ledger struct {
	dir   string // of the job's tapes; empty: there is no ledger
	began int64  // when the launcher began to start the ranks, by process.Monotonic

	// The ranks make the folder, with their tapes. Until then the entries wait here.
	waiting []process.Entry
	pause   time.Duration // before the next look for the folder
	next    time.Time     // of that look
}

// The first and the longest pause before the next look for the job's folder. Each pause is twice as long as the last
// one.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// note writes an entry before it returns, if the job's folder is there.
func (l *ledger) note(e process.Entry) {
	if l.dir == "" {
		return
	}
	e.Began = l.began
	l.waiting = append(l.waiting, e.Now())
	l.pause = firstPause / 2
	l.write()
}

// write writes the entries that wait.
func (l *ledger) write() {
	for len(l.waiting) > 0 {
		if errors.Is(process.AppendEntry(l.dir, l.waiting[0]), fs.ErrNotExist) {
			l.pause = min(2*l.pause, longestPause)
			l.next = time.Now().Add(l.pause)
			return
		}
		l.waiting = l.waiting[1:]
	}
}

// again returns a channel on which a message comes when it is time to write; nil if no entry waits.
func (l *ledger) again() <-chan time.Time {
	if len(l.waiting) == 0 {
		return nil
	}
	return time.After(time.Until(l.next))
}
