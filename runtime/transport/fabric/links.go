package fabric

import (
	"sync"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/proxy"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/inproc"
	"github.com/carillon-rt/carillon/runtime/transport/shm"
)

// Links holds one rank's connections to all others in one communicator. Only the goroutine that drives the rank may use
// Conn and Waiter; the other methods may be called from any goroutine at any time.
type Links struct {
	f        *Fabric
	comm     lifecycle.CommID
	rank     int
	conns    []transport.Conn
	waiter   *transport.Waiter
	topology transport.Topology

	board   *transport.Board // nil unless all ranks share memory
	inbox   *shm.Inbox       // nil when no peer is reached through shared memory
	shms    []*shm.Conn
	inprocs []*inproc.Conn

	endpoint *proxy.Endpoint // nil if all ranks are of this Fabric
	unwatch  []func()
	alerts   atomic.Uint32 // Inbox.Alerts, as of the last look

	telling sync.Mutex // held while peers are notified, so that a Notice goes out before the connection ends
	close   sync.Once
}

// Rank returns this rank's number.
func (l *Links) Rank() int { return l.rank }

// Size returns the number of ranks.
func (l *Links) Size() int { return len(l.conns) }

// Conn returns the connection to peer; nil for the rank itself.
func (l *Links) Conn(peer int) transport.Conn { return l.conns[peer] }

// Waiter returns the Waiter on which the rank waits for its connections.
func (l *Links) Waiter() *transport.Waiter { return l.waiter }

// Board returns the memory where each rank posts what all others read; nil unless all ranks share memory, in processes
// of their own.
func (l *Links) Board() *transport.Board { return l.board }

// Topology returns where the ranks are.
func (l *Links) Topology() transport.Topology { return l.topology }

// Local reports whether all ranks are of this rank's Fabric and reach each other without the help of the kernel. Any of
// these ranks can then be prepared as local in another communicator.
func (l *Links) Local() bool { return len(l.inprocs) == len(l.conns)-1 }

// OnRefused registers f to be called for each operation of another rank that this rank's proxy rejects, because its
// token does not match. f may be called from any goroutine, and must not use the Links.
func (l *Links) OnRefused(f func(error)) {
	if l.endpoint != nil {
		l.endpoint.OnRefused(f)
	}
}

// Lost returns why peer was lost: a *transport.NoticeError, or a *lifecycle.PeerError with CodeRankDead, which says how
// the death is known, CodeUnreachable, or CodeInternal. It returns nil as long as the peer is not lost, and for a peer
// that closed in order: Peek and TrySend report that.
func (l *Links) Lost(peer int) error {
	l.look()
	return l.waiter.Lost(peer)
}

// FirstLost returns the first peer that was lost, and why, as Lost does; -1 and nil if none was.
func (l *Links) FirstLost() (peer int, err error) {
	l.look()
	return l.waiter.FirstLost()
}

// look checks for notices in shared memory, which nothing else reads.
func (l *Links) look() {
	if l.inbox != nil && l.inbox.Alerts() != l.alerts.Load() {
		alerts := l.inbox.Alerts()
		for _, c := range l.shms {
			_ = c.Check() // Check tells the Waiter
		}
		l.alerts.Store(alerts)
	}
}

// Notify tells all peers that this rank gave up. When it returns, this call or another one has told them.
func (l *Links) Notify(n transport.Notice) {
	l.telling.Lock()
	defer l.telling.Unlock()
	for _, c := range l.conns {
		if c != nil {
			c.Notify(n)
		}
	}
}

// Close closes all connections. It waits while a peer is reading from this rank's memory, which takes microseconds.
// Idempotent; a second caller waits for the first.
func (l *Links) Close() {
	l.close.Do(func() {
		l.telling.Lock()
		defer l.telling.Unlock()
		for _, cancel := range l.unwatch {
			cancel()
		}
		for _, c := range l.inprocs {
			c.Revoke() // revoke all first, so that Close waits once
		}
		for _, c := range l.conns {
			if c != nil {
				_ = c.Close() // can't fail
			}
		}
		if l.endpoint != nil {
			l.endpoint.Close()
		}
		if l.inbox != nil {
			l.inbox.Close()
		}
	})
}
