package tcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

const (
	handshakeTime = 5 * time.Second // for a stranger to prove itself
	drainTime     = 5 * time.Second // for answers to reach their ranks when the server closes
	maxStrangers  = 1024            // connections in the handshake at a time
	strangerGrace = 250 * time.Millisecond
	keepForgotten = 1024 // ids that are remembered as used, to tell a late rank so
)

// Server is where ranks meet: one listener for any number of unique ids. Its methods are safe for concurrent use.
type Server struct {
	listener  net.Listener
	log       *slog.Logger
	strangers *strangers
	watch     *watch
	work      sync.WaitGroup

	mu        sync.Mutex
	meetings  map[lifecycle.CommID]*meeting
	forgotten []lifecycle.CommID // oldest first; their meetings are still there to say so
	peers     map[*peer]struct{}
	closed    bool
}

// Listen opens a server at addr, host:port; port 0 takes a free one, see Addr. A host alone, or none, is every address of this
// machine. Ctx bounds the opening alone. Of config it uses Log: for who is waited for, after 5, 10, 20 … seconds, and for strangers
// that were refused, once in 30 seconds at most. The caller owns the server and closes it. An address that is taken or is not of
// this host is a *[lifecycle.SystemError].
func Listen(ctx context.Context, addr string, config Config) (*Server, error) {
	sockets := net.ListenConfig{KeepAliveConfig: keepAlive}
	listener, err := sockets.Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w: another program, or a former run of this one, holds the port", err)
	}
	if err != nil {
		return nil, &lifecycle.SystemError{Code: lifecycle.CodeSystem, Op: "open the rendezvous at " + addr, Err: err}
	}
	return serve(listener, config), nil
}

// serve runs a server on a listener of any kind.
func serve(listener net.Listener, config Config) *Server {
	s := &Server{
		listener: listener,
		log:      config.withDefaults().Log.With("address", listener.Addr().String()),
		meetings: map[lifecycle.CommID]*meeting{},
		peers:    map[*peer]struct{}{},
	}
	s.strangers = newStrangers(s.log, maxStrangers)
	s.watch = newWatch()
	s.work.Go(s.accept)
	s.work.Go(s.reportWaiting)
	return s
}

// Addr is where the server listens, host:port. A host of 0.0.0.0 or :: stands for every address of this machine.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Serve lets the ranks of an id meet. How many they are, they say themselves, and must agree on. An id is served once: a second
// time, or after it was forgotten, is a *[lifecycle.UsageError].
func (s *Server) Serve(id lifecycle.UniqueID) error {
	if err := id.Valid(); err != nil {
		return err
	}
	comm := lifecycle.RootCommID(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return &lifecycle.UsageError{Code: lifecycle.CodeInvalidUsage, Comm: comm, Detail: "the rendezvous server is closed"}
	}
	if s.meetings[comm] != nil {
		return &lifecycle.UsageError{
			Code: lifecycle.CodeInvalidUsage, Comm: comm,
			Detail: "this unique id is served already, or was; make a new one for each communicator",
		}
	}
	s.meetings[comm] = newMeeting(comm, id.Secret())
	return nil
}

// Forget ends an id. Ranks that wait or still come for it get a *rendezvous.StaleError; what they were already given still reaches
// them. An id is forgotten by itself when all its ranks have come and gone, so Forget is for one that is given up.
func (s *Server) Forget(id lifecycle.UniqueID) {
	comm := lifecycle.RootCommID(id)
	s.mu.Lock()
	m := s.meetings[comm]
	s.mu.Unlock()
	if m != nil && m.forget("the unique id was forgotten at "+time.Now().Format(time.TimeOnly)+" by the rank that serves it") {
		s.retire(comm)
	}
}

// retire keeps a forgotten id among the last few, so that a rank that comes for it is told what happened.
func (s *Server) retire(comm lifecycle.CommID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = append(s.forgotten, comm)
	if len(s.forgotten) > keepForgotten {
		delete(s.meetings, s.forgotten[0])
		s.forgotten = s.forgotten[1:]
	}
}

// Close ends the server and all its ids: whoever waits gets a *rendezvous.StaleError. It returns when everything is delivered or
// drained for five seconds, and nothing of the server is left.
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

	err := s.listener.Close()
	s.strangers.close()
	s.watch.close()
	for _, m := range meetings {
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

func (s *Server) accept() {
	var pause time.Duration
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Most likely out of file descriptors. The ranks in the backlog wait; so does this loop, longer each time.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.strangers.refused("", fmt.Errorf("accept: %w", err))
			if !s.watch.pause(pause) {
				return
			}
			continue
		}
		pause = 0
		if !s.strangers.enter(conn) {
			return
		}
		s.work.Go(func() { s.handle(conn) })
	}
}

// handle is the life of one connection.
func (s *Server) handle(conn net.Conn) {
	defer conn.Close()                                  //nolint:errcheck // it is over, one way or the other
	_ = conn.SetDeadline(time.Now().Add(handshakeTime)) // fails on a closed connection, as will the next read
	m, err := admit(conn, s.lookup)
	s.strangers.leave(conn)
	if errors.Is(err, errWordless) {
		return // somebody looked whether this process lives, which is worth no line
	}
	if errors.Is(err, errUnknown) {
		// A rank that comes too early asks again, and one that comes for a stale id says so itself.
		s.log.Debug("rendezvous refused a connection", "from", conn.RemoteAddr().String(), "because", err)
		return
	}
	if err != nil {
		s.strangers.refused(conn.RemoteAddr().String(), err)
		return
	}
	_ = conn.SetDeadline(time.Time{}) // likewise
	tune(conn)

	p := &peer{server: s, meeting: m, conn: conn}
	p.out.conn = conn
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.peers[p] = struct{}{}
	s.mu.Unlock()

	how, detail := p.listen()
	if m.depart(p, how, detail) {
		s.retire(m.comm)
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
