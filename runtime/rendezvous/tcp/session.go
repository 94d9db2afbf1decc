package tcp

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// joinTime is how long a card may take to leave this host.
const joinTime = 10 * time.Second

// session is a client's connection after the handshake: exchanges as streams on it, and one goroutine that reads.
type session struct {
	conn  net.Conn
	ended chan struct{} // closed when no reply comes any more
	err   error         // why; read after ended

	write sync.Mutex

	mu      sync.Mutex
	next    uint64
	streams map[uint64]chan reply
}

func newSession(conn net.Conn) *session {
	s := &session{conn: conn, ended: make(chan struct{}), streams: map[uint64]chan reply{}}
	go s.read() // ends with the connection; bye waits for it
	return s
}

// open joins an exchange and returns where its replies come.
func (s *session) open(j *join) <-chan reply {
	// One place for the end, and one for a roll: asked for every few seconds and read at once.
	replies := make(chan reply, 2)
	s.mu.Lock()
	s.next++
	j.stream = s.next
	s.streams[j.stream] = replies
	s.mu.Unlock()
	s.send(j.encode(), joinTime)
	return replies
}

func (s *session) close(stream uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, stream)
}

func (s *session) ask(a *ask) { s.send(a.encode(), leaveTime) }

func (s *session) leave(l *leave) { s.send(l.encode(), leaveTime) }

func (s *session) send(frame []byte, within time.Duration) {
	s.write.Lock()
	defer s.write.Unlock()
	_ = s.conn.SetWriteDeadline(time.Now().Add(within)) // fails on a closed connection, as will the write
	if _, err := s.conn.Write(frame); err != nil {
		_ = s.conn.Close() // the reader sees the end
	}
}

// bye tells the server that this rank is done and waits, briefly, for it to hang up: else the bye could be lost.
func (s *session) bye() {
	s.send(finishFrame(beginFrame(kindBye)), leaveTime)
	timer := time.NewTimer(leaveTime)
	defer timer.Stop()
	select {
	case <-s.ended:
	case <-timer.C:
		_ = s.conn.Close() // the reader sees the end
		<-s.ended
	}
}

func (s *session) read() {
	defer close(s.ended)
	defer s.conn.Close() //nolint:errcheck // it is over
	in := bufio.NewReaderSize(s.conn, 16<<10)
	for {
		k, body, err := readFrame(in, replyLimit)
		if err != nil {
			s.err = err
			return
		}
		r, err := decodeReply(k, body, time.Now())
		if err != nil {
			s.err = err
			return
		}
		s.mu.Lock()
		replies := s.streams[r.stream]
		if r.kind != kindRoll {
			delete(s.streams, r.stream)
		}
		s.mu.Unlock()
		if replies == nil {
			continue // given up meanwhile
		}
		if r.kind == kindRoll && len(replies) > 0 {
			continue // the last one is still unread, and the last place is for the end
		}
		replies <- r
	}
}
