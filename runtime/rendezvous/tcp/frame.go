package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle/wire"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
)

// The kinds of frames. Their numbers are the protocol's.
type kind uint8

const (
	kindJoin kind = iota + 1
	kindLeave
	kindAsk
	kindBye
	kindResult
	kindFailed
	kindRefused
	kindRoll
	kindAbsent
)

const (
	headerSize = 5       // length and kind
	maxHost    = 255     // bytes of a host's name
	firstRead  = 1 << 20 // bytes allocated for a frame before it arrives
	maxText    = 512     // bytes of a reason
	maxWithout = 255     // bytes of Member.Without

	// Bytes of a client's frame, and of a server's.
	requestLimit = rendezvous.MaxPayload + rendezvous.MaxKey + maxHost + maxWithout + maxText + 64
	replyLimit   = rendezvous.MaxRanks*(rendezvous.MaxPayload+3) + 64
	_            = uint32(replyLimit) // a length must hold it

	maxAgo = uint64(100 * 365 * 24 * time.Hour / time.Millisecond) // of the times in a frame
)

// errMalformed is the error of all decoders.
var errMalformed = errors.New("malformed frame")

// beginFrame begins a frame; the caller appends the body, and then writes the length over the first four bytes.
func beginFrame(k kind) []byte { return append(make([]byte, 4, 64), byte(k)) }

// readFrame reads one frame whose body has at most limit bytes. Ahead of the data, it allocates at most firstRead
// bytes, or as many as it has received.
func readFrame(r io.Reader, limit int) (kind, []byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	size := int(binary.BigEndian.Uint32(header[:])) - 1
	k := kind(header[4])
	if size < 0 || size > limit {
		return 0, nil, fmt.Errorf("%w: kind %d with %d bytes, at most %d are allowed", errMalformed, k, size, limit)
	}
	var body []byte
	for len(body) < size {
		n := min(size-len(body), max(len(body), firstRead))
		body = slices.Grow(body, n)[:len(body)+n]
		if _, err := io.ReadFull(r, body[len(body)-n:]); err != nil {
			return 0, nil, fmt.Errorf("in the middle of a frame: %w", err)
		}
	}
	return k, body, nil
}

// request is a client's message: it joins an exchange, leaves it, won't join it, asks for the roll, or has finished.
type request struct {
	kind    kind
	stream  uint64 // of the answer
	member  rendezvous.Member
	key     string
	payload []byte // of join
	how     rendezvous.Departure
	reason  string // of leave and absent, like how
}

func (q *request) encode() []byte {
	b := binary.AppendUvarint(beginFrame(q.kind), q.stream)
	b = binary.AppendVarint(b, int64(q.member.Rank))
	b = binary.AppendVarint(b, int64(q.member.Size))
	b = binary.AppendUvarint(b, uint64(q.member.PID))
	b = wire.AppendBytes(b, q.member.Host)
	b = wire.AppendBytes(binary.AppendUvarint(b, uint64(q.member.Was)), q.member.Without)
	b = wire.AppendBytes(wire.AppendBytes(b, q.key), q.payload)
	b = wire.AppendBytes(append(b, byte(q.how)), words.Clip(q.reason, maxText))
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func decodeRequest(k kind, body []byte) (request, error) {
	switch k {
	case kindJoin, kindLeave, kindAbsent, kindAsk, kindBye:
	default:
		return request{}, fmt.Errorf("%w: kind %d from a client", errMalformed, k)
	}
	r := wire.NewReader(body)
	q := request{kind: k, stream: r.Uvarint()}
	q.member = rendezvous.Member{Rank: r.Int(), Size: r.Int(), PID: r.UpTo(math.MaxInt32), Host: r.Text(maxHost)}
	q.member.Was, q.member.Without = r.UpTo(rendezvous.MaxRanks), r.Text(maxWithout)
	q.key, q.payload = r.Text(rendezvous.MaxKey), r.Bytes(rendezvous.MaxPayload)
	q.how, q.reason = readDeparture(r), r.Text(maxText)
	return q, end(r)
}

// reply is a server's message on a stream: the outcome of its exchange, or, for kindRoll, the roll as outcome.Failed.
type reply struct {
	kind    kind
	stream  uint64
	outcome mem.Outcome // payloads are slices of the frame
}

func decodeReply(k kind, body []byte, now time.Time) (reply, error) {
	r := wire.NewReader(body)
	answer := reply{kind: k, stream: r.Uvarint()}
	switch k {
	case kindResult:
		payloads := make([][]byte, r.Count(rendezvous.MaxRanks))
		for i := range payloads {
			payloads[i] = r.Bytes(rendezvous.MaxPayload)
		}
		answer.outcome.Payloads = payloads
	case kindFailed, kindRoll:
		answer.outcome.Failed = readRoll(r, now)
	case kindRefused:
		if answer.outcome.Refused = r.Text(maxText); answer.outcome.Refused == "" {
			r.Fail(errMalformed)
		}
	default:
		return reply{}, fmt.Errorf("%w: kind %d from a server", errMalformed, k)
	}
	return answer, end(r)
}

// encodeReply returns the beginning of a frame for one stream. shared is the rest of its body, the same for many
// receivers.
func encodeReply(k kind, stream uint64, shared []byte) (header []byte) {
	header = binary.AppendUvarint(beginFrame(k), stream)
	binary.BigEndian.PutUint32(header, uint32(len(header)-4+len(shared)))
	return header
}

// encodeOutcome returns the shared part of the answer to a join. It encodes that only once.
func encodeOutcome(o *mem.Outcome) (k kind, shared []byte) {
	encode := func() (b []byte) {
		b = binary.AppendUvarint(b, uint64(len(o.Payloads)))
		for _, p := range o.Payloads {
			b = wire.AppendBytes(b, p)
		}
		return b
	}
	k = kindResult
	switch {
	case o.Failed != nil:
		k, encode = kindFailed, func() []byte { return encodeRoll(o.Failed, time.Now()) }
	case o.Refused != "":
		k, encode = kindRefused, func() []byte { return wire.AppendBytes(nil, words.Clip(o.Refused, maxText)) }
	}
	if o.Encoded == nil {
		o.Encoded = encode()
	}
	return k, o.Encoded
}

// encodeRoll returns the shared part of a failed or roll frame. It leaves out the key, which the receiver knows.
func encodeRoll(roll *rendezvous.Roll, now time.Time) []byte {
	b := binary.AppendUvarint(nil, uint64(max(roll.Size, 0)))
	index := map[string]uint64{}
	var hosts []string
	for _, m := range roll.Members {
		if _, known := index[m.Host]; !known {
			index[m.Host] = uint64(len(hosts))
			hosts = append(hosts, m.Host)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(hosts)))
	for _, host := range hosts {
		b = wire.AppendBytes(b, host)
	}
	b = binary.AppendUvarint(b, uint64(len(roll.Members)))
	for _, m := range roll.Members {
		b = binary.AppendVarint(b, int64(m.Rank))
		b = binary.AppendVarint(b, int64(m.Size))
		b = binary.AppendUvarint(b, index[m.Host])
		b = binary.AppendUvarint(b, uint64(m.PID))
		b = wire.AppendBytes(binary.AppendUvarint(b, uint64(m.Was)), m.Without)
		b = appendAgo(b, m.Arrived, now)
		b = append(b, byte(m.How))
		if m.How != rendezvous.Waiting {
			b = appendAgo(b, m.Left, now)
			b = wire.AppendBytes(b, words.Clip(m.Detail, maxText))
		}
	}
	return b
}

func readRoll(r *wire.Reader, now time.Time) *rendezvous.Roll {
	roll := &rendezvous.Roll{Size: r.UpTo(rendezvous.MaxRanks)}
	hosts := make([]string, r.Count(4*rendezvous.MaxRanks))
	for i := range hosts {
		hosts[i] = r.Text(maxHost)
	}
	roll.Members = make([]rendezvous.Member, r.Count(4*rendezvous.MaxRanks))
	for i := range roll.Members {
		m := &roll.Members[i]
		m.Rank, m.Size = r.Int(), r.Int()
		if host := r.Uvarint(); host < uint64(len(hosts)) {
			m.Host = hosts[host]
		} else {
			r.Fail(errMalformed)
		}
		m.PID = r.UpTo(math.MaxInt32)
		m.Was, m.Without = r.UpTo(rendezvous.MaxRanks), r.Text(maxWithout)
		m.Arrived = readAgo(r, now)
		m.How = readDeparture(r)
		if m.How != rendezvous.Waiting {
			m.Left = readAgo(r, now)
			m.Detail = r.Text(maxText)
		}
	}
	return roll
}

func readDeparture(r *wire.Reader) rendezvous.Departure {
	how := rendezvous.Departure(r.Byte())
	if how > rendezvous.Shut {
		r.Fail(errMalformed)
		return rendezvous.Waiting
	}
	return how
}

func appendAgo(b []byte, t, now time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	return binary.AppendUvarint(b, uint64(max(now.Sub(t).Milliseconds(), 0))+1)
}

func readAgo(r *wire.Reader, now time.Time) time.Time {
	v := r.Uvarint()
	if v == 0 {
		return time.Time{}
	}
	if v > maxAgo {
		r.Fail(errMalformed)
		return time.Time{}
	}
	return now.Add(-time.Duration(v-1) * time.Millisecond)
}

// end returns the error of a body that was read to its end.
func end(r *wire.Reader) error {
	if err := r.End(); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	return nil
}
