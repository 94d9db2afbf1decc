package tcp

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
)

const (
	maxQueued = 1 << 12          // frames that a peer has not read
	sendTime  = 60 * time.Second // for writing one frame, which may be large and one of thousands
)

// peer is a rank's connection at the server. It queues frames, and has a goroutine only while there are frames to send.
type peer struct {
	meeting *mem.Meeting
	conn    net.Conn

	mu      sync.Mutex
	queue   []net.Buffers
	running bool
	ended   bool // send does nothing; the connection is closed for writing when the queue is empty
	work    sync.WaitGroup
}

// listen takes requests until the connection ends, and returns how it ended.
func (p *peer) listen() (rendezvous.Departure, string) {
	for {
		k, body, err := readFrame(p.conn, requestLimit)
		var q request
		if err == nil {
			q, err = decodeRequest(k, body)
		}
		if err == nil && (k == kindJoin || k == kindAbsent) {
			err = rendezvous.CheckArgs(q.key, q.member.Size, q.payload)
		}
		if err != nil {
			return departure(err)
		}
		deliver := func(o *mem.Outcome) {
			k, shared := encodeOutcome(o)
			p.send(encodeReply(k, q.stream, shared), shared)
		}
		switch k {
		case kindBye:
			return rendezvous.Closed, ""
		case kindJoin:
			p.meeting.Join(p, q.key, q.member, q.payload, deliver)
		case kindAbsent:
			p.meeting.Absent(q.key, q.member, q.how, q.reason, deliver)
		case kindLeave:
			p.meeting.Leave(p, q.key, q.member.Rank, q.how, q.reason)
		default: // ask; if the exchange has ended, its outcome was already sent
			if roll := p.meeting.Roll(q.key); roll != nil {
				b := encodeRoll(roll, time.Now())
				p.send(encodeReply(kindRoll, q.stream, b), b)
			}
		}
	}
}

// departure returns how the process of a connection left, by the connection's error. The kernel closes the connections
// of a process that ends with FIN, or with RST if data was unread; a host that vanished sends nothing.
func departure(err error) (rendezvous.Departure, string) {
	for _, end := range []error{
		io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.ECONNREFUSED, io.ErrClosedPipe,
	} {
		if errors.Is(err, end) {
			return rendezvous.Died, ""
		}
	}
	return rendezvous.Lost, err.Error()
}

// send queues a frame, given in pieces that must not be modified any more.
func (p *peer) send(pieces ...[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	if len(p.queue) >= maxQueued {
		p.ended, p.queue = true, nil
		_ = p.conn.Close() // the peer sends requests and never reads; listen returns
		return
	}
	p.queue = append(p.queue, pieces)
	p.run()
}

// finish lets the queue drain, for the given time at most, and then closes the connection for writing. The peer then
// closes its side, which ends listen. Closing the connection first could destroy frames on their way to the peer.
func (p *peer) finish(within time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.ended = true
	_ = p.conn.SetDeadline(time.Now().Add(within)) // fails on a closed connection, which has drained
	p.run()
}

// run starts the goroutine that sends, if there is none. Called with the lock held.
func (p *peer) run() {
	if !p.running {
		p.running = true
		p.work.Go(p.drain)
	}
}

func (p *peer) drain() {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			if p.ended {
				_ = door.CloseWrite(p.conn) // it fails on a broken connection
			}
			p.running = false
			p.mu.Unlock()
			return
		}
		frame := p.queue[0]
		p.queue = p.queue[1:]
		if !p.ended {
			_ = p.conn.SetWriteDeadline(time.Now().Add(sendTime)) // fails on a closed connection, as will the write
		}
		p.mu.Unlock()
		if _, err := frame.WriteTo(p.conn); err != nil {
			_ = p.conn.Close() // the rest of the frames can't be read; listen returns
		}
	}
}
