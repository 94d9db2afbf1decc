package host

import (
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// Messages on a stream start at multiples of a word, and data is sent and released in whole words, so no element
// straddles the end of a transport's buffer.
const wordSize = 8

// padding returns how many bytes follow n bytes to make them whole words; wholeWords returns how many of n bytes are
// whole words.
func padding(n int) int    { return -n & (wordSize - 1) }
func wholeWords(n int) int { return n &^ (wordSize - 1) }

// header precedes a call's data: it is the call's signature.
type header = engine.Signature

const headerSize = engine.SignatureSize

// stageSize is how much a link can pack before sending, so that a header and a small message behind it go out in one
// piece.
const stageSize = 1024

// link is the connection to one peer, and the progress of the running operation on it.
type link struct {
	conn   transport.Conn
	placer transport.Placer // conn, if it is a Placer
	rank   int

	// Outgoing. rest is what TrySend was given and has not accepted; nothing else may be sent before it.
	rest  []byte
	step  int // the step that rest belongs to; algo.None when rest is in stage
	sent  int // number of the operation's sends to this peer that were begun
	stage [stageSize]byte

	// Incoming.
	met     bool   // its header has arrived
	odd     bool   // its header differs from ours
	head    header // that header, if odd
	taken   int    // number of the operation's receives from this peer that ended
	placed  bool   // conn was told where to write the current message
	partial [headerSize]byte
	got     int    // length of an incomplete header in partial
	kept    []byte // data taken off a lost peer's conn to count it; it precedes what conn shows

	pair    pairLink
	proxied *proxied // nil unless the peer is on another node and there is a tape
}

func (l *link) reset() {
	l.rest, l.step, l.sent = nil, algo.None, 0
	l.met, l.odd, l.taken, l.placed, l.got = false, false, 0, false, 0
	if l.proxied != nil {
		l.proxied.reset()
	}
}

// pack puts h, and the message behind it if it fits, into the empty stage as the next data to send. It reports whether
// the message fitted.
func (l *link) pack(h *header, message []byte) bool {
	h.Put(l.stage[:])
	n := headerSize
	fits := len(message) <= stageSize-headerSize-wordSize
	if fits {
		n += packMessage(l.stage[n:], message)
	}
	l.rest, l.step = l.stage[:n], algo.None
	return fits
}

// packMessage copies a message and its padding, and returns their total length.
func packMessage(to, message []byte) int {
	n := copy(to, message)
	pad := padding(n)
	clear(to[n : n+pad])
	return n + pad
}

// flush sends as much of rest as the connection accepts, and returns how many bytes that was.
func (l *link) flush() (int, error) {
	if l.proxied != nil {
		l.proxied.offer()
	}
	n, err := l.conn.TrySend(l.rest)
	if err != nil {
		return 0, err
	}
	l.rest = l.rest[n:]
	if l.proxied != nil {
		l.proxied.took(n, len(l.rest) > 0)
	}
	return n, nil
}

// header takes a header off a window. It returns how many bytes of the window it used, and whether the header is
// complete: a transport's buffer may end in the middle of a header.
func (l *link) header(window []byte) (h header, n int, ok bool) {
	if l.got == 0 && len(window) >= headerSize {
		return engine.GetSignature(window), headerSize, true
	}
	n = copy(l.partial[l.got:], window)
	if l.got += n; l.got < headerSize {
		return header{}, n, false
	}
	l.got = 0
	return engine.GetSignature(l.partial[:]), n, true
}

// placeBytes is the least data for which it is worthwhile to tell a connection where to write it: smaller amounts have
// mostly arrived by then.
const placeBytes = 512 << 10

// placeable reports whether to place the rest of the current message, n bytes. A message is placed only once.
func (l *link) placeable(n int) bool {
	return l.placer != nil && !l.placed && n >= placeBytes && len(l.kept) == 0
}

// place makes the transport write the rest of the current message to dst as it arrives.
func (l *link) place(dst []byte) {
	l.placer.Place(dst[:wholeWords(len(dst))])
	l.placed = true
}

// unplace stops the transport from writing to the current message's memory.
func (l *link) unplace() {
	if l.placed {
		l.placer.Place(nil)
		l.placed = false
	}
}

// portion returns how much of a message of size bytes can be taken from a window when from bytes are done and limit
// bytes may be: whole words, or all of the rest if its padding is there, too. n counts bytes of the message, used
// counts bytes of the window.
func portion(window []byte, from, limit, size int) (n, used int) {
	n = min(limit-from, len(window))
	if pad := padding(size); from+n == size && len(window) >= n+pad {
		return n, n + pad
	}
	n = wholeWords(n)
	return n, n
}
