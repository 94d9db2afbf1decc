package mesh

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/carillon-rt/carillon/lifecycle/wire"
)

// Bounds on questions and answers, in bytes and members.
const (
	// MaxQuestion is the longest question.
	MaxQuestion = 16 << 10
	// MaxAnswer is the longest answer; a longer one is cut off.
	MaxAnswer  = 64 << 10
	maxTargets = 16 << 10
	// flushBytes is the size of gathered answers from which they are passed on.
	flushBytes = 256 << 10
)

// question is what one member asks another and, through it, further members.
type question struct {
	id      [16]byte
	asker   string         // the first one
	reply   netip.AddrPort // where the answers go
	replyTo string         // the name of the member there
	left    time.Duration  // until the answers are due
	direct  bool           // the units are asked by the asker itself
	units   []unit         // the first is that of the receiver
	body    []byte
}

// appendQuestion encodes a question.
//
//	id 16 | asker text | reply: address text, name text | ms left uv | direct u8
//	units uv, of each: name text, id u64, absent uv, of each: name text, id u64 | body: len uv, bytes
func appendQuestion(b []byte, q *question) []byte {
	b = append(b, q.id[:]...)
	b = wire.AppendBytes(b, q.asker)
	b = wire.AppendBytes(b, q.reply.String())
	b = wire.AppendBytes(b, q.replyTo)
	b = binary.AppendUvarint(b, uint64(max(q.left, 0)/time.Millisecond))
	b = wire.AppendBool(b, q.direct)
	b = binary.AppendUvarint(b, uint64(len(q.units)))
	for i := range q.units {
		u := &q.units[i]
		b = u.member.append(b)
		b = binary.AppendUvarint(b, uint64(len(u.absent)))
		for _, a := range u.absent {
			b = a.append(b)
		}
	}
	return wire.AppendBytes(b, q.body)
}

func (t instance) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(wire.AppendBytes(b, t.name), t.id)
}

func readInstance(r *wire.Reader) instance {
	t := instance{r.Text(maxName), r.Uint64()}
	if t.name == "" {
		r.Fail(errMessage)
	}
	return t
}

func decodeQuestion(b []byte) (q question, err error) {
	r := wire.NewReader(b)
	r.Fill(q.id[:])
	q.asker = r.Text(maxName)
	addr := r.Text(64)
	q.replyTo = r.Text(maxName)
	q.left = time.Duration(r.UpTo(int(maxAskTime/time.Millisecond))) * time.Millisecond
	q.direct = r.Bool()
	q.units = make([]unit, r.Count(maxTargets))
	room := maxTargets
	for i := range q.units {
		u := &q.units[i]
		u.member = readInstance(r)
		for range r.Count(room) {
			u.absent = append(u.absent, readInstance(r))
		}
		if room -= u.size(); room < 0 {
			r.Fail(errMessage)
		}
	}
	q.body = append([]byte(nil), r.Bytes(MaxQuestion)...)
	if len(q.units) == 0 || q.asker == "" {
		r.Fail(errMessage)
	}
	if q.reply, err = netip.ParseAddrPort(addr); err != nil {
		r.Fail(errMessage)
	}
	return q, r.Err()
}

// reply is one member's answer in a message.
type reply struct {
	from, by string
	status   uint8
	body     []byte
}

const (
	replyOK      = iota
	replyNothing // there is nothing to say
	replyBusy    // too many questions
	numReplies
)

// appendReplies encodes answers.
//
//	question id 16 | replies uv, of each: from text, by text, status u8, body: len uv, bytes
func appendReplies(b []byte, id [16]byte, replies []reply) []byte {
	b = append(b, id[:]...)
	b = binary.AppendUvarint(b, uint64(len(replies)))
	for i := range replies {
		r := &replies[i]
		b = wire.AppendBytes(b, r.from)
		b = wire.AppendBytes(b, r.by)
		b = append(b, r.status)
		b = wire.AppendBytes(b, r.body)
	}
	return b
}

func decodeReplies(b []byte) (id [16]byte, replies []reply, err error) {
	r := wire.NewReader(b)
	r.Fill(id[:])
	replies = make([]reply, r.Count(maxTargets))
	for i := range replies {
		a := reply{from: r.Text(maxName), by: r.Text(maxName), status: r.Byte()}
		a.body = append([]byte(nil), r.Bytes(MaxAnswer)...)
		if a.status >= numReplies {
			r.Fail(errMessage)
		}
		replies[i] = a
	}
	return id, replies, r.Err()
}
