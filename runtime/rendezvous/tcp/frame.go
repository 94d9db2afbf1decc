package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

const (
	magic   = "carillon"
	version = 1
)

// The kinds of frames. Their numbers are the protocol's.
type kind uint8

const (
	kindHello kind = iota + 1
	kindChallenge
	kindProof
	kindWelcome
	kindGoAway
	kindJoin
	kindLeave
	kindAsk
	kindBye
	kindResult
	kindFailed
	kindRefused
	kindRoll
)

const (
	headerSize     = 5                                                        // length and kind
	handshakeLimit = 64                                                       // bytes of a frame's body before the sender is known
	maxHost        = 255                                                      // bytes of a host's name
	firstRead      = 1 << 20                                                  // bytes of a frame that are believed to come
	maxText        = 512                                                      // bytes of a reason
	requestLimit   = rendezvous.MaxPayload + rendezvous.MaxKey + maxHost + 64 // bytes of a client's frame
	replyLimit     = rendezvous.MaxRanks*(rendezvous.MaxPayload+3) + 64       // bytes of a server's frame
	maxAgo         = uint64(100 * 365 * 24 * time.Hour / time.Millisecond)    // times before that are nonsense
	_              = uint32(replyLimit)                                       // a length must hold it
)

// errMalformed is what every decoder answers to bytes that are not of its message.
var errMalformed = errors.New("malformed frame")

// beginFrame begins a frame; the body is appended by the caller, and finishFrame writes the length.
func beginFrame(k kind) []byte { return append(make([]byte, 4, 64), byte(k)) }

func finishFrame(b []byte) []byte {
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// readFrame reads one frame whose body has at most limit bytes. It reserves no more than a mebibyte ahead of what it has received,
// or as much as that.
func readFrame(r io.Reader, limit int) (kind, []byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	size := int(binary.BigEndian.Uint32(header[:])) - 1
	k := kind(header[4])
	if size < 0 || size > limit {
		return 0, nil, fmt.Errorf("%w: kind %d with %d bytes, at most %d are allowed here", errMalformed, k, size, limit)
	}
	var body []byte
	for len(body) < size {
		// A length is a promise; memory follows what has come.
		n := min(size-len(body), max(len(body), firstRead))
		body = slices.Grow(body, n)[:len(body)+n]
		if _, err := io.ReadFull(r, body[len(body)-n:]); err != nil {
			return 0, nil, truncated(err)
		}
	}
	return k, body, nil
}

// truncated turns an end inside of a frame into what it is.
func truncated(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// A join is a client's request to take part in an exchange.
type join struct {
	stream     uint64
	rank, size int
	pid        int
	host, key  string
	payload    []byte
}

func (j *join) encode() []byte {
	b := beginFrame(kindJoin)
	b = binary.AppendUvarint(b, j.stream)
	b = binary.AppendVarint(b, int64(j.rank))
	b = binary.AppendVarint(b, int64(j.size))
	b = binary.AppendUvarint(b, uint64(j.pid))
	b = appendBytes(b, j.host)
	b = appendBytes(b, j.key)
	b = appendBytes(b, j.payload)
	return finishFrame(b)
}

func decodeJoin(body []byte) (join, error) {
	d := decoder{rest: body}
	j := join{
		stream:  d.uvarint(),
		rank:    d.int32(),
		size:    d.int32(),
		pid:     d.upTo(1<<31 - 1),
		host:    string(d.bytes(maxHost)),
		key:     string(d.bytes(rendezvous.MaxKey)),
		payload: d.bytes(rendezvous.MaxPayload),
	}
	return j, d.finish()
}

// A leave says that a rank gave an exchange up, and why.
type leave struct {
	rank        int
	key, reason string
}

func (l *leave) encode() []byte {
	b := binary.AppendVarint(beginFrame(kindLeave), int64(l.rank))
	b = appendBytes(b, l.key)
	return finishFrame(appendBytes(b, clip(l.reason)))
}

func decodeLeave(body []byte) (leave, error) {
	d := decoder{rest: body}
	l := leave{rank: d.int32(), key: string(d.bytes(rendezvous.MaxKey)), reason: string(d.bytes(maxText))}
	return l, d.finish()
}

// An ask wants to know who is in an exchange.
type ask struct {
	stream uint64
	key    string
}

func (a *ask) encode() []byte {
	return finishFrame(appendBytes(binary.AppendUvarint(beginFrame(kindAsk), a.stream), a.key))
}

func decodeAsk(body []byte) (ask, error) {
	d := decoder{rest: body}
	a := ask{stream: d.uvarint(), key: string(d.bytes(rendezvous.MaxKey))}
	return a, d.finish()
}

// encodeRefused ends a stream with a reason.
func encodeRefused(stream uint64, reason string) []byte {
	return finishFrame(appendBytes(binary.AppendUvarint(beginFrame(kindRefused), stream), clip(reason)))
}

func clip(text string) string { return text[:min(len(text), maxText)] }

// A reply is what a server answers on a stream; one of payloads, roll and refused is set.
type reply struct {
	kind     kind
	stream   uint64
	payloads [][]byte // slices of the frame
	roll     *rendezvous.Roll
	refused  string
}

func decodeReply(k kind, body []byte, now time.Time) (reply, error) {
	d := decoder{rest: body}
	r := reply{kind: k, stream: d.uvarint()}
	switch k {
	case kindResult:
		r.payloads = decodePayloads(&d)
	case kindFailed, kindRoll:
		r.roll = decodeRoll(&d, now)
	case kindRefused:
		r.refused = string(d.bytes(maxText))
	default:
		return reply{}, fmt.Errorf("%w: kind %d from a server", errMalformed, k)
	}
	return r, d.finish()
}

// encodeReply heads a body that is shared by many receivers with the stream of one of them.
func encodeReply(k kind, stream uint64, shared []byte) (header []byte) {
	header = binary.AppendUvarint(beginFrame(k), stream)
	binary.BigEndian.PutUint32(header, uint32(len(header)-4+len(shared)))
	return header
}

// encodePayloads is the shared part of a result.
func encodePayloads(payloads [][]byte) []byte {
	total := binary.MaxVarintLen32
	for _, p := range payloads {
		total += len(p) + binary.MaxVarintLen32
	}
	b := binary.AppendUvarint(make([]byte, 0, total), uint64(len(payloads)))
	for _, p := range payloads {
		b = appendBytes(b, p)
	}
	return b
}

// decodePayloads returns slices of the body.
func decodePayloads(d *decoder) [][]byte {
	payloads := make([][]byte, d.count(rendezvous.MaxRanks))
	for i := range payloads {
		payloads[i] = d.bytes(rendezvous.MaxPayload)
	}
	return payloads
}

// encodeRoll is the shared part of a failed or roll frame. The key is not in it: the receiver knows its own.
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
		b = appendBytes(b, host)
	}
	b = binary.AppendUvarint(b, uint64(len(roll.Members)))
	for _, m := range roll.Members {
		b = binary.AppendVarint(b, int64(m.Rank))
		b = binary.AppendVarint(b, int64(m.Size))
		b = binary.AppendUvarint(b, index[m.Host])
		b = binary.AppendUvarint(b, uint64(m.PID))
		b = appendAgo(b, m.Arrived, now)
		b = append(b, byte(m.How))
		if m.How != rendezvous.Waiting {
			b = appendAgo(b, m.Left, now)
			b = appendBytes(b, m.Detail[:min(len(m.Detail), maxText)])
		}
	}
	return b
}

func decodeRoll(d *decoder, now time.Time) *rendezvous.Roll {
	roll := &rendezvous.Roll{Size: d.upTo(rendezvous.MaxRanks)}
	hosts := make([]string, d.count(4*rendezvous.MaxRanks))
	for i := range hosts {
		hosts[i] = string(d.bytes(maxHost))
	}
	roll.Members = make([]rendezvous.Member, d.count(4*rendezvous.MaxRanks))
	for i := range roll.Members {
		m := &roll.Members[i]
		m.Rank, m.Size = d.int32(), d.int32()
		if host := d.upTo(len(hosts)); host < len(hosts) {
			m.Host = hosts[host]
		} else {
			d.fail()
		}
		m.PID = d.upTo(1<<31 - 1)
		m.Arrived = d.ago(now)
		m.How = rendezvous.Departure(d.byte())
		if m.How > rendezvous.Closed {
			d.fail()
		}
		if m.How != rendezvous.Waiting {
			m.Left = d.ago(now)
			m.Detail = string(d.bytes(maxText))
		}
	}
	return roll
}

func appendBytes[T string | []byte](b []byte, data T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}

func appendAgo(b []byte, t, now time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	return binary.AppendUvarint(b, uint64(max(now.Sub(t).Milliseconds(), 0))+1)
}

// decoder takes a body apart. After a failure it yields zeros, and finish tells.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) fail() { d.rest, d.bad = nil, true }

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) int32() int {
	v, n := binary.Varint(d.rest)
	if n <= 0 || int64(int32(v)) != v {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return int(v)
}

func (d *decoder) upTo(limit int) int {
	v := d.uvarint()
	if v > uint64(limit) {
		d.fail()
		return 0
	}
	return int(v)
}

// count is the number of things that follow, of which each has at least one byte.
func (d *decoder) count(limit int) int { return d.upTo(min(limit, len(d.rest))) }

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.fail()
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) bytes(limit int) []byte {
	n := d.upTo(limit)
	if n > len(d.rest) {
		d.fail()
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) ago(now time.Time) time.Time {
	v := d.uvarint()
	if v == 0 {
		return time.Time{}
	}
	if v > maxAgo {
		d.fail()
		return time.Time{}
	}
	return now.Add(-time.Duration(v-1) * time.Millisecond)
}

func (d *decoder) finish() error {
	if d.bad || len(d.rest) > 0 {
		return errMalformed
	}
	return nil
}
