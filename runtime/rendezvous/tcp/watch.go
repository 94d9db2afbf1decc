package tcp

import (
	"time"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// firstLine is when a rank that waits is first worth a line; each next one comes after twice the time, and maxLine
// after the last at the latest.
const (
	firstLine = 5 * time.Second
	maxLine   = 5 * time.Minute
)

// beat counts out when a wait is worth a line: 5, 10, 20 … seconds after it began.
type beat struct {
	since time.Time
	mark  time.Duration // of the next line
}

// wait returns how long it is to the next line.
func (b *beat) wait() time.Duration {
	passed := time.Since(b.since)
	for b.mark <= passed {
		b.mark = max(firstLine, b.mark+min(b.mark, maxLine))
	}
	return b.mark - passed
}

// watch lets a goroutine sleep until there is something to report, or the server closes.
type watch struct {
	news chan struct{}
	done chan struct{}
}

func newWatch() *watch { return &watch{news: make(chan struct{}, 1), done: make(chan struct{})} }

func (w *watch) wake() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

func (w *watch) close() { close(w.done) }

// pause waits, and returns false when the server closes.
func (w *watch) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.done:
		return false
	}
}

// reportWaiting writes a line while ranks wait for others, one for the whole server: about the longest wait.
func (s *Server) reportWaiting() {
	for {
		select {
		case <-s.watch.news:
		case <-s.watch.done:
			return
		}
		for b := (beat{since: time.Now()}); s.watch.pause(b.wait()); {
			roll, since, more := s.longest()
			if roll == nil {
				break
			}
			if since != b.since {
				b = beat{since: since}
			}
			if time.Since(since) >= firstLine { // what waited before it is done, if it has not waited long
				s.log.Warn("rendezvous waits for ranks", append(waitingAttrs(roll, since), "other_exchanges", more)...)
			}
		}
	}
}

// longest returns the exchange in which somebody has waited longest, since when, and how many others there are.
func (s *Server) longest() (longest *rendezvous.Roll, since time.Time, more int) {
	s.mu.Lock()
	meetings := make([]*meeting, 0, len(s.meetings))
	for _, m := range s.meetings {
		meetings = append(meetings, m)
	}
	s.mu.Unlock()
	for _, m := range meetings {
		for _, roll := range m.waiting() {
			more++
			for _, member := range roll.Members {
				if longest == nil || member.Arrived.Before(since) {
					longest, since = roll, member.Arrived
				}
			}
		}
	}
	return longest, since, max(more-1, 0)
}

// waitingAttrs are what every line about a waiting exchange says.
func waitingAttrs(roll *rendezvous.Roll, since time.Time) []any {
	return []any{
		"key", roll.Key,
		"waited", words.Round(time.Since(since)),
		"arrived", len(roll.Present()),
		"size", roll.Size,
		"missing", words.Numbers(roll.Missing()),
		"present", rendezvous.FormatMembers(roll.Present()),
	}
}
