package tcp

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
)

const (
	drainTime     = 5 * time.Second // for answers to reach their ranks when the server closes
	keepForgotten = 1024            // ids that are remembered as used, to tell a late rank so
	// silence is how long the other host may not answer before a connection counts as broken.
	silence = 20 * time.Second
)

// Server is where ranks meet: any number of unique ids behind one door. Its methods are safe for concurrent use.
type Server struct {
	door  *door.Door
	owned bool // the door is the server's
	log   *slog.Logger
	watch *watch
	work  sync.WaitGroup

	mu        sync.Mutex
	meetings  map[lifecycle.CommID]*meeting
	forgotten []lifecycle.CommID // oldest first; their meetings are still there to say so
	peers     map[*peer]struct{}
	closed    bool
}

// Listen opens a server with a door of its own at addr, host:port; see door.Listen. Of config it uses Log: for who is
// waited for, after 5, 10, 20 … seconds, and for strangers that were refused. The caller owns the server and closes
// it. An address that is taken or is not of this host is a *[lifecycle.SystemError].
func Listen(ctx context.Context, addr string, config Config) (*Server, error) {
	config = config.withDefaults()
	d, err := door.Listen(ctx, addr, config.Log)
	if err != nil {
		return nil, &lifecycle.SystemError{Code: lifecycle.CodeSystem, Op: "open the rendezvous at " + addr, Err: err}
	}
	s := Serve(d, config)
	s.owned = true
	return s, nil
}

// Serve is Listen behind a door that is there. The door stays the caller's, to be closed after the server.
func Serve(d *door.Door, config Config) *Server {
	s := &Server{
		door: d, log: config.withDefaults().Log.With("address", d.Addr()), watch: newWatch(),
		meetings: map[lifecycle.CommID]*meeting{}, peers: map[*peer]struct{}{},
	}
	s.work.Go(s.reportWaiting)
	return s
}

// Addr is where the server is reached, host:port. A host of 0.0.0.0 or :: stands for every address of this machine.
func (s *Server) Addr() string { return s.door.Addr() }

// Serve lets the ranks of an id meet. How many they are, they say themselves, and must agree on. An id is served once:
// a second time, or after it was forgotten, is a *[lifecycle.UsageError].
func (s *Server) Serve(id lifecycle.UniqueID) error {
	if err := id.Valid(); err != nil {
		return err
	}
	comm := lifecycle.RootCommID(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return &lifecycle.UsageError{
			Code: lifecycle.CodeInvalidUsage, Comm: comm, Detail: "the rendezvous server is closed",
		}
	}
	m := newMeeting(comm)
	if !s.door.Add(door.Room(comm), id.Secret(), func(_ door.About, conn net.Conn) { s.enter(m, conn) }) {
		return &lifecycle.UsageError{
			Code: lifecycle.CodeInvalidUsage, Comm: comm,
			Detail: "this unique id is served already, or was; make a new one for each communicator",
		}
	}
	s.meetings[comm] = m
	return nil
}

// Forget ends an id. Ranks that wait or still come for it get a *rendezvous.StaleError; what they were already given
// still reaches them. An id is forgotten by itself when all its ranks have come and gone, so Forget is for one that is
// given up.
func (s *Server) Forget(id lifecycle.UniqueID) {
	comm := lifecycle.RootCommID(id)
	why := "the unique id was forgotten at " + time.Now().Format(time.TimeOnly) + " by the rank that serves it"
	if m := s.lookup(comm); m != nil && m.forget(why) {
		s.retire(comm)
	}
}

// retire keeps a forgotten id among the last few, so that a rank that comes for it is told what happened.
func (s *Server) retire(comm lifecycle.CommID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = append(s.forgotten, comm)
	if len(s.forgotten) > keepForgotten {
		s.door.Remove(door.Room(s.forgotten[0]))
		delete(s.meetings, s.forgotten[0])
		s.forgotten = s.forgotten[1:]
	}
}

// Close ends the server and all its ids: ranks that wait get a *rendezvous.StaleError. It returns when everything is
// delivered or drained for five seconds, and nothing of the server is left.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.work.Wait()
		return nil
	}
	s.closed = true
	meetings, peers := s.meetings, s.peers
	s.meetings, s.peers = map[lifecycle.CommID]*meeting{}, nil
	s.mu.Unlock()

	var err error
	if s.owned {
		err = s.door.Close()
	}
	s.watch.close()
	for comm, m := range meetings {
		s.door.Remove(door.Room(comm))
		m.forget("the rendezvous server was closed at " + time.Now().Format(time.TimeOnly))
	}
	for p := range peers {
		p.out.finish(drainTime)
	}
	s.work.Wait()
	if err != nil {
		return fmt.Errorf("close the rendezvous: %w", err)
	}
	return nil
}

func (s *Server) enter(m *meeting, conn net.Conn) {
	_ = door.KeepWatch(conn, silence) // without it the loss of a host is noticed later, no more
	p := &peer{server: s, meeting: m, conn: conn}
	p.out.conn = conn
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close() // as if it had come later
		return
	}
	s.peers[p] = struct{}{}
	s.work.Go(func() { s.serve(p) })
}

func (s *Server) serve(p *peer) {
	defer p.conn.Close() //nolint:errcheck // it is over, one way or the other
	how, detail := p.listen()
	if p.meeting.depart(p, how, detail) {
		s.retire(p.meeting.comm)
	}
	p.out.finish(drainTime)
	p.out.wait()

	s.mu.Lock()
	delete(s.peers, p)
	s.mu.Unlock()
}

func (s *Server) lookup(comm lifecycle.CommID) *meeting {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meetings[comm]
}
