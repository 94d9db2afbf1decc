package tcp

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
)

const (
	maxQueued = 1 << 12          // frames that a peer may leave unread
	sendTime  = 60 * time.Second // for one frame to leave, which may be large and one of thousands
)

// peer is a rank's connection, at the server. It sends frames without making the sender wait, with a goroutine only
// while there is something to send.
type peer struct {
	meeting *mem.Meeting
	conn    net.Conn

	mu      sync.Mutex
	queue   []net.Buffers
	running bool
	ended   bool // nothing more is taken; the connection is closed for writing when the queue is empty
	work    sync.WaitGroup
}

// listen takes requests until the connection ends, and returns how it did.
func (p *peer) listen() (rendezvous.Departure, string) {
	for {
		k, body, err := readFrame(p.conn, requestLimit)
		if err == nil && k == kindBye {
			return rendezvous.Closed, ""
		}
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
		case kindJoin:
			p.meeting.Join(p, q.key, q.member, q.payload, deliver)
		case kindAbsent:
			p.meeting.Absent(q.key, q.member, q.how, q.reason, deliver)
		case kindLeave:
			p.meeting.Leave(p, q.key, q.member.Rank, q.how, q.reason)
		default: // ask; of an exchange that is over the answer is on its way
			if roll := p.meeting.Roll(q.key); roll != nil {
				b := encodeRoll(roll, time.Now())
				p.send(encodeReply(kindRoll, q.stream, b), b)
			}
		}
	}
}

// departure tells from the end of a connection what became of the process behind it. The kernel closes the connections
// of a process that ends, with FIN, or with RST when something was unread; a host that vanished answers nothing at all.
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

// send queues a frame, given in pieces that are not to be written to any more.
func (p *peer) send(pieces ...[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	if len(p.queue) >= maxQueued {
		p.ended, p.queue = true, nil
		_ = p.conn.Close() // a peer that asks and never reads; its reader sees the end
		return
	}
	p.queue = append(p.queue, pieces)
	p.run()
}

// finish lets the queue drain, for the given time at most, and then tells the peer that nothing more comes. The peer's
// answer is to close its side, which ends our reader; closing first could destroy what is still on its way to it.
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
			if half, ok := p.conn.(interface{ CloseWrite() error }); p.ended && ok {
				_ = half.CloseWrite() // broken is as good as closed
			} else if p.ended {
				_ = p.conn.Close()
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
			_ = p.conn.Close() // a broken stream of frames is of no use; the reader sees the end
		}
	}
}
