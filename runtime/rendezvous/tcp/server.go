package tcp

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
)

const (
	drainTime     = 5 * time.Second  // for answers to reach the ranks when the server closes
	keepForgotten = 1024             // used ids that are remembered, to tell late ranks
	silence       = 20 * time.Second // silence of the other host until a connection counts as broken
)

// Server is where ranks meet: any number of unique ids, each behind a door. Its methods are safe for concurrent use.
type Server struct {
	work sync.WaitGroup

	mu        sync.Mutex
	served    map[lifecycle.CommID]served
	forgotten []lifecycle.CommID // oldest first; their meetings stay, to refuse late ranks
	peers     map[*peer]struct{}
	closed    bool
}

// served is a unique id.
type served struct {
	*mem.Meeting
	door *door.Door
}

// NewServer returns a server, which the caller closes.
func NewServer() *Server {
	return &Server{served: map[lifecycle.CommID]served{}, peers: map[*peer]struct{}{}}
}

// Serve lets the ranks of an id meet behind a door, which the caller still owns. The ranks themselves say how many they
// are, and must agree. An id is served once: a second call, or one after the id was forgotten, returns a
// *[lifecycle.UsageError].
func (s *Server) Serve(d *door.Door, id lifecycle.UniqueID) error {
	if err := id.Valid(); err != nil {
		return err
	}
	comm := lifecycle.RootCommID(id)
	refused := &lifecycle.UsageError{
		Code: lifecycle.CodeInvalidUsage, Comm: comm, Detail: "the rendezvous server is closed",
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return refused
	}
	m := mem.New()
	if !d.Add(door.Room(comm), id.Secret(), func(_ door.About, conn net.Conn) { s.enter(comm, m, conn) }) {
		refused.Detail = "this unique id is served already, or was; make a new one for each communicator"
		return refused
	}
	s.served[comm] = served{m, d}
	return nil
}

// Meeting returns the meeting of a served id, or nil.
func (s *Server) Meeting(id lifecycle.UniqueID) *mem.Meeting {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served[lifecycle.RootCommID(id)].Meeting
}

// Forget ends an id that is given up: ranks that wait or still come for it get a *rendezvous.StaleError. The server
// forgets an id by itself when all its ranks have come and gone.
func (s *Server) Forget(id lifecycle.UniqueID) {
	s.forget(lifecycle.RootCommID(id),
		"the unique id was forgotten at "+time.Now().Format(time.TimeOnly)+" by the rank that serves it")
}

// forget ends an id, but remembers it for a while, so that a rank that comes for it is told what happened.
func (s *Server) forget(comm lifecycle.CommID, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, ok := s.served[comm]; !ok || !m.Forget(why+makeNew) {
		return
	}
	s.forgotten = append(s.forgotten, comm)
	if len(s.forgotten) > keepForgotten {
		s.served[s.forgotten[0]].door.Remove(door.Room(s.forgotten[0]))
		delete(s.served, s.forgotten[0])
		s.forgotten = s.forgotten[1:]
	}
}

// makeNew ends the sentences about an id that was forgotten.
const makeNew = "; make a new one for each communicator"

// Close ends the server and all its ids: ranks that wait get a *rendezvous.StaleError. It returns when everything is
// delivered, or after five seconds of draining, and nothing of the server is left. It may be called twice.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	ids, peers := s.served, slices.Collect(maps.Keys(s.peers))
	s.served = nil
	s.mu.Unlock()

	for comm, m := range ids {
		m.door.Remove(door.Room(comm))
		m.Forget("the rendezvous server was closed at " + time.Now().Format(time.TimeOnly) + makeNew)
	}
	for _, p := range peers {
		p.finish(drainTime)
	}
	s.work.Wait()
}

// enter admits a rank, unless the server is closed.
func (s *Server) enter(comm lifecycle.CommID, m *mem.Meeting, conn net.Conn) {
	_ = door.KeepWatch(conn, silence) // if this fails, the loss of a host is noticed later
	p := &peer{meeting: m, conn: conn}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close() // as if it had come later
		return
	}
	s.peers[p] = struct{}{}
	s.work.Go(func() {
		defer conn.Close() //nolint:errcheck // the rank has left
		how, detail := p.listen()
		if m.Depart(p, how, detail) {
			now := time.Now().Format(time.TimeOnly)
			s.forget(comm, fmt.Sprintf("the unique id was used up at %s: all its ranks met and left", now))
		}
		p.finish(drainTime)
		p.work.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.peers, p)
	})
}
