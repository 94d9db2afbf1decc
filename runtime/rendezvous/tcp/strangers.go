package tcp

import (
	"container/list"
	"log/slog"
	"net"
	"sync"
	"time"
)

// refusalPeriod is how often refused strangers are worth a line, however many they are.
const refusalPeriod = 30 * time.Second

// strangers are the connections that have not proved themselves yet. There is room for so many; a newcomer takes the place of the
// one that lingers longest, which an honest rank, done in milliseconds, hardly ever is.
type strangers struct {
	log  *slog.Logger
	room int

	mu     sync.Mutex
	closed bool
	queue  list.List // of *stranger, oldest first
	seats  map[net.Conn]*list.Element
	freed  chan struct{} // has one token when a place may have become free

	refusals int // since the last line
	lastLine time.Time
}

type stranger struct {
	conn  net.Conn
	since time.Time
}

func newStrangers(log *slog.Logger, room int) *strangers {
	return &strangers{log: log, room: room, seats: map[net.Conn]*list.Element{}, freed: make(chan struct{}, 1)}
}

// enter makes a place for conn, and waits for one if all are taken by strangers that have hardly had time to speak. It closes conn
// and returns false when the server closes.
func (s *strangers) enter(conn net.Conn) bool {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = conn.Close() // nobody will serve it
			return false
		}
		if s.queue.Len() < s.room {
			s.seats[conn] = s.queue.PushBack(&stranger{conn: conn, since: time.Now()})
			s.mu.Unlock()
			return true
		}
		oldest := s.queue.Front().Value.(*stranger)
		wait := strangerGrace - time.Since(oldest.since)
		if wait <= 0 {
			s.remove(oldest.conn)
			_ = oldest.conn.Close() // its handler sees the end and reports it
			s.mu.Unlock()
			continue
		}
		s.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-s.freed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// leave frees the place of a connection that has proved itself or was refused.
func (s *strangers) leave(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(conn)
}

func (s *strangers) remove(conn net.Conn) {
	if e := s.seats[conn]; e != nil {
		s.queue.Remove(e)
		delete(s.seats, conn)
		select {
		case s.freed <- struct{}{}:
		default:
		}
	}
}

// refused counts a connection that was turned away. The first gets a line; those that follow share one a period.
func (s *strangers) refused(from string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusals++
	if s.closed || time.Since(s.lastLine) < refusalPeriod {
		return
	}
	s.log.Warn("rendezvous refused connections", "count", s.refusals, "last", from, "because", why)
	s.refusals, s.lastLine = 0, time.Now()
}

// close turns everyone away.
func (s *strangers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusals > 0 {
		s.log.Warn("rendezvous refused connections", "count", s.refusals)
	}
	s.closed = true
	for conn := range s.seats {
		s.remove(conn)
		_ = conn.Close() // its handler sees the end
	}
}
