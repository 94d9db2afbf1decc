package mesh

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// Bounds on questions and answers, in bytes and members.
const (
	// MaxQuestion is the longest question.
	MaxQuestion = 16 << 10
	// MaxAnswer is the longest answer; a longer one is cut off.
	MaxAnswer  = 64 << 10
	maxTargets = 16 << 10
	maxReplies = 4096
	// flushBytes is how much is gathered before it is passed on.
	flushBytes = 256 << 10
)

// question is what one member asks another, and through it those behind.
type question struct {
	id      [16]byte
	asker   string         // who asked first
	reply   netip.AddrPort // whom the answers go to
	replyTo string
	left    time.Duration // for the answers to be there
	direct  bool          // the units are asked by the asker itself
	units   []unit        // the first is the one that is asked
	body    []byte
}

// appendQuestion encodes a question.
//
//	id 16 | asker text | reply: address text, name text | ms left uv | direct u8
//	units uv, of each: name text, id u64, absent uv, of each: name text, id u64 | body: len uv, bytes
func appendQuestion(b []byte, q *question) []byte {
	b = append(b, q.id[:]...)
	b = appendText(b, q.asker)
	b = appendText(b, q.reply.String())
	b = appendText(b, q.replyTo)
	b = binary.AppendUvarint(b, uint64(max(q.left, 0)/time.Millisecond))
	direct := byte(0)
	if q.direct {
		direct = 1
	}
	b = append(b, direct)
	b = binary.AppendUvarint(b, uint64(len(q.units)))
	for i := range q.units {
		u := &q.units[i]
		b = u.member.append(b)
		b = binary.AppendUvarint(b, uint64(len(u.absent)))
		for _, a := range u.absent {
			b = a.append(b)
		}
	}
	return appendBytes(b, q.body)
}

func (t target) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(appendText(b, t.name), t.id)
}

func (r *reader) target() target { return target{r.text(maxName), r.u64()} }

func decodeQuestion(b []byte) (question, error) {
	r := reader{b: b}
	var q question
	copy(q.id[:], r.take(len(q.id)))
	q.asker = r.text(maxName)
	addr := r.text(64)
	q.replyTo = r.text(maxName)
	q.left = time.Duration(r.count(int(maxAskTime/time.Millisecond))) * time.Millisecond
	q.direct = r.u8() == 1
	room := maxTargets
	for n := r.count(maxTargets); n > 0 && !r.bad; n-- {
		u := unit{member: r.target()}
		for k := r.count(room); k > 0 && !r.bad; k-- {
			u.absent = append(u.absent, r.target())
		}
		room -= u.size()
		if room < 0 {
			r.bad = true
		}
		q.units = append(q.units, u)
	}
	q.body = append([]byte(nil), r.bytes(MaxQuestion)...)
	if r.bad || len(q.units) == 0 || q.asker == "" {
		return question{}, errMessage
	}
	var err error
	if q.reply, err = netip.ParseAddrPort(addr); err != nil {
		return question{}, errMessage
	}
	return q, nil
}

// reply is one member's answer on its way.
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
		b = appendText(b, r.from)
		b = appendText(b, r.by)
		b = append(b, r.status)
		b = appendBytes(b, r.body)
	}
	return b
}

func decodeReplies(b []byte) (id [16]byte, replies []reply, err error) {
	r := reader{b: b}
	copy(id[:], r.take(len(id)))
	for n := r.count(maxReplies); n > 0 && !r.bad; n-- {
		a := reply{from: r.text(maxName), by: r.text(maxName), status: r.u8()}
		a.body = append([]byte(nil), r.bytes(MaxAnswer)...)
		if a.status >= numReplies {
			r.bad = true
		}
		replies = append(replies, a)
	}
	if r.bad {
		return id, nil, errMessage
	}
	return id, replies, nil
}
