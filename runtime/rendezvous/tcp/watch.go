package tcp

import (
	"time"

	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// firstLine is when a rank that waits is first worth a line; each next one comes after twice the time, up to maxLine.
const (
	firstLine = 5 * time.Second
	maxLine   = 5 * time.Minute
)

// beat counts out the times of a waiting line: after 5 s, 10 s, 20 s ….
type beat struct{ next time.Duration }

// step returns how long to wait for the next line.
func (b *beat) step() time.Duration {
	if b.next == 0 {
		b.next = firstLine
		return firstLine
	}
	wait := b.next // so that the lines are at 5, 10, 20 seconds since the beginning
	b.next = min(2*b.next, maxLine)
	return wait
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

// reportWaiting writes a line while ranks wait for others, one for the whole server: about the exchange that waits longest.
func (s *Server) reportWaiting() {
	for {
		select {
		case <-s.watch.news:
		case <-s.watch.done:
			return
		}
		for b := (beat{}); ; {
			if !s.watch.pause(b.step()) {
				return
			}
			roll, since, more := s.longest()
			if roll == nil {
				break
			}
			if time.Since(since) < firstLine {
				b = beat{} // what waited before is done, and this has not waited long
				continue
			}
			s.log.Warn("rendezvous waits for ranks", append(waitingAttrs(roll, since), "other_exchanges", more)...)
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
		"waited", time.Since(since).Round(time.Millisecond),
		"arrived", len(roll.Present()),
		"size", roll.Size,
		"missing", rendezvous.FormatRanks(roll.Missing()),
		"present", rendezvous.FormatMembers(roll.Present()),
	}
}
