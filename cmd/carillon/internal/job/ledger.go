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
	pause   time.Duration // until the next look for the folder
}

// firstPause is the first pause until the next look for the job's folder. Each pause is twice as long as the last one.
const firstPause = 10 * time.Millisecond

// note writes an entry before it returns, if the job's folder is there.
func (l *ledger) note(e process.Entry) {
	if l.dir == "" {
		return
	}
	e.Began = l.began
	l.waiting = append(l.waiting, e.Now())
	l.pause = firstPause
	l.write()
}

// write writes the entries that wait.
func (l *ledger) write() {
	for len(l.waiting) > 0 {
		if errors.Is(process.AppendEntry(l.dir, l.waiting[0]), fs.ErrNotExist) {
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
	pause := l.pause
	l.pause *= 2
	return time.After(pause)
}
