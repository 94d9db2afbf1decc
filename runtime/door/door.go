package door

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	handshakeTime = 5 * time.Second        // for a stranger to prove itself
	maxStrangers  = 1024                   // connections in the handshake at a time
	strangerGrace = 250 * time.Millisecond // before a stranger may be replaced
	refusalPeriod = 30 * time.Second       // between lines about refused strangers
)

// Door is a listening port of this process. Its methods are safe for concurrent use.
type Door struct {
	listener net.Listener
	wire     Wire
	log      *slog.Logger
	work     sync.WaitGroup
	done     chan struct{} // closed by Close
	freed    chan struct{} // gets an element when a place may have become free

	mu        sync.Mutex
	closed    bool
	rooms     map[Room]*room
	places    int
	strangers list.List // elements are strangers, oldest first
	refusals  int       // number since the last log line
	lastLine  time.Time
}

type room struct {
	secret []byte
	enter  func(About, net.Conn)
}

// stranger is a connection before its proof.
type stranger struct {
	conn  net.Conn
	since time.Time
}

// Listen opens a door at an address, host:port; port 0 chooses a free port, see Addr, and an empty host means every
// address of this machine. ctx bounds only the opening. wire is the minimum protection of connections; a dialer may ask
// for more. log gets a line about refused connections, at most once in 30 seconds. The caller closes the door.
func Listen(ctx context.Context, addr string, wire Wire, log *slog.Logger) (*Door, error) {
	config := net.ListenConfig{KeepAlive: -1} // see KeepWatch
	listener, err := config.Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w: another program, or a former run of this one, holds the port", err)
	}
	if err != nil {
		return nil, err
	}
	return Open(listener, wire, log), nil
}

// Open is Listen for an existing listener, which the Door then owns.
func Open(listener net.Listener, wire Wire, log *slog.Logger) *Door {
	d := &Door{
		listener: listener, wire: wire, log: log.With("address", listener.Addr().String()), places: maxStrangers,
		done: make(chan struct{}), freed: make(chan struct{}, 1), rooms: map[Room]*room{},
	}
	d.work.Go(d.accept)
	return d
}

// Addr returns the door's address, host:port. A host of 0.0.0.0 or :: stands for every address of this machine.
func (d *Door) Addr() string { return d.listener.Addr().String() }

// Add puts a room behind the door, unless a room has that name already or the door is closed. enter gets each
// connection after its handshake, on a goroutine that Close waits for. It owns the connection, which is a *Sealed
// unless both sides ask for Plain, and must not block.
func (d *Door) Add(name Room, secret []byte, enter func(About, net.Conn)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.rooms[name] != nil {
		return false
	}
	d.rooms[name] = &room{secret, enter}
	return true
}

// Remove removes a room. Connections that are in the handshake may still enter.
func (d *Door) Remove(name Room) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.rooms, name)
}

// Close stops listening, closes all strangers, and waits until no enter function runs any more. It may be called twice.
func (d *Door) Close() error {
	d.mu.Lock()
	var err error
	if !d.closed {
		d.closed = true
		close(d.done)
		err = d.listener.Close()
		if d.refusals > 0 {
			d.log.Warn("refused connections", "count", d.refusals)
		}
		for e := d.strangers.Front(); e != nil; e = e.Next() {
			_ = e.Value.(stranger).conn.Close() // its handshake fails
		}
	}
	d.mu.Unlock()
	d.work.Wait()
	return err
}

func (d *Door) lookup(name Room) *room {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rooms[name]
}

func (d *Door) accept() {
	var pause time.Duration
	for {
		conn, err := d.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Most likely out of file descriptors: wait, longer each time.
			d.refused("", fmt.Errorf("accept: %w", err))
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			if !d.sleep(pause) {
				return
			}
			continue
		}
		pause = 0
		place := d.admit(conn)
		if place == nil {
			return
		}
		d.work.Go(func() { d.receive(conn, place) })
	}
}

// sleep waits, until a place becomes free at the longest, and returns false if the door is closed.
func (d *Door) sleep(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.freed:
	case <-d.done:
		return false
	}
	return true
}

// admit finds a place for conn. If all are taken, it closes the oldest stranger once that stranger has had
// strangerGrace. If the door is closed, it closes conn and returns nil.
func (d *Door) admit(conn net.Conn) (place *list.Element) {
	for {
		d.mu.Lock()
		if d.closed {
			d.mu.Unlock()
			_ = conn.Close() // nothing will serve it
			return nil
		}
		if d.strangers.Len() < d.places {
			defer d.mu.Unlock()
			return d.strangers.PushBack(stranger{conn, time.Now()})
		}
		front := d.strangers.Front()
		oldest := front.Value.(stranger)
		wait := strangerGrace - time.Since(oldest.since)
		if wait <= 0 {
			d.strangers.Remove(front)
			_ = oldest.conn.Close() // its handshake fails
		}
		d.mu.Unlock()
		if wait > 0 {
			d.sleep(wait)
		}
	}
}

func (d *Door) receive(conn net.Conn, place *list.Element) {
	_ = conn.SetDeadline(time.Now().Add(handshakeTime)) // fails on a closed connection, as will the next read
	r, about, agreed, err := answer(conn, d.wire, d.lookup)
	d.mu.Lock()
	d.strangers.Remove(place)
	d.mu.Unlock()
	select {
	case d.freed <- struct{}{}:
	default:
	}
	switch {
	case err == nil:
		_ = conn.SetDeadline(time.Time{}) // as above
		r.enter(about, agreed.over(conn, false))
		return
	case errors.Is(err, errNoHello): // a probe of whether this process lives
	case errors.Is(err, ErrUnknown), errors.Is(err, errLeft):
		// A rank that is too early tries again, and one that is too late reports that itself.
		d.log.Debug("refused a connection", "from", conn.RemoteAddr().String(), "because", err)
	default:
		d.refused(conn.RemoteAddr().String(), err)
	}
	_ = conn.Close()
}

// refused counts a refused connection. The first is logged at once, later ones share one line per period.
func (d *Door) refused(from string, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refusals++
	if d.closed || time.Since(d.lastLine) < refusalPeriod {
		return
	}
	d.log.Warn("refused connections", "count", d.refusals, "last", from, "because", why)
	d.refusals, d.lastLine = 0, time.Now()
}

// KeepWatch makes the kernel end a connection when the other host has answered neither keep-alive probes nor data for
// that long, at least two seconds. It ignores connections other than TCP.
func KeepWatch(conn net.Conn, silence time.Duration) error {
	if sealed, ok := conn.(*Sealed); ok {
		conn = sealed.Conn
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	const probes = 5
	err := tcp.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: silence / 2, Interval: max(silence/2/probes, time.Second), Count: probes,
	})
	if err != nil {
		return err
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = setUserTimeout(int(fd), silence)
	})
	return errors.Join(err, failed)
}
