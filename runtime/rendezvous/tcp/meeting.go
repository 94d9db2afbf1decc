package tcp

import (
	"fmt"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/internal/gather"
)

// meeting is one unique id at a server.
type meeting struct {
	comm lifecycle.CommID

	mu        sync.Mutex
	gather    *gather.Gather
	forgotten bool
	encoded   encoded
}

// encoded is the last outcome as bytes: all ranks of an exchange get the same one.
type encoded struct {
	payloads *[]byte // first of the payloads; identifies a result
	roll     *rendezvous.Roll
	bytes    []byte
}

func newMeeting(comm lifecycle.CommID) *meeting { return &meeting{comm: comm, gather: gather.New(0)} }

// join adds a rank; its answer goes to the peer's outbox, from whichever call it comes.
func (m *meeting) join(p *peer, j join) {
	m.mu.Lock()
	defer m.mu.Unlock()
	member := rendezvous.Member{Rank: j.rank, Size: j.size, Host: j.host, PID: j.pid}
	m.gather.Join(time.Now(), p, j.key, member, j.payload, func(o gather.Outcome) {
		switch {
		case o.Failed != nil:
			if m.encoded.roll != o.Failed {
				m.encoded = encoded{roll: o.Failed, bytes: encodeRoll(o.Failed, time.Now())}
			}
			p.out.send(encodeReply(kindFailed, j.stream, m.encoded.bytes), m.encoded.bytes)
		case o.Refused != "":
			p.out.send(encodeRefused(j.stream, o.Refused))
		default:
			if m.encoded.payloads != &o.Payloads[0] {
				m.encoded = encoded{payloads: &o.Payloads[0], bytes: encodePayloads(o.Payloads)}
			}
			p.out.send(encodeReply(kindResult, j.stream, m.encoded.bytes), m.encoded.bytes)
		}
	})
}

func (m *meeting) leave(p *peer, l leave) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gather.Leave(time.Now(), p, l.key, l.rank, l.reason)
}

// ask answers with the roll of an exchange; with nothing if it is over, because that answer is on its way.
func (m *meeting) ask(p *peer, a ask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if roll, ok := m.gather.Roll(a.key); ok {
		b := encodeRoll(roll, time.Now())
		p.out.send(encodeReply(kindRoll, a.stream, b), b)
	}
}

// depart takes all ranks of a peer out of the id, and reports whether that was the last, which ends the id.
func (m *meeting) depart(p *peer, how rendezvous.Departure, detail string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gather.Depart(time.Now(), p, how, detail)
	m.encoded = encoded{} // the exchange is over; its memory need not outlive it
	if m.forgotten || !m.gather.Done() {
		return false
	}
	m.end(fmt.Sprintf("the unique id was used up at %s: all its ranks met and left", time.Now().Format(time.TimeOnly)))
	return true
}

// forget ends the id, and reports whether it had not ended before.
func (m *meeting) forget(reason string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.forgotten {
		return false
	}
	m.end(reason)
	return true
}

func (m *meeting) end(reason string) {
	m.forgotten = true
	m.gather.Forget(reason + "; make a new one for each communicator")
}

// waiting returns the rolls of the exchanges in which somebody waits.
func (m *meeting) waiting() []*rendezvous.Roll {
	m.mu.Lock()
	defer m.mu.Unlock()
	var rolls []*rendezvous.Roll
	for _, key := range m.gather.Open() {
		if roll, ok := m.gather.Roll(key); ok {
			rolls = append(rolls, roll)
		}
	}
	return rolls
}
