package host

import (
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// Messages on a stream start at multiples of a word, and all is sent and released in whole words: so no element
// straddles the end of a transport's buffer.
const wordSize = 8

// padding is what follows n bytes to make them whole words; words is how many of n bytes are whole words.
func padding(n int) int    { return -n & (wordSize - 1) }
func wholeWords(n int) int { return n &^ (wordSize - 1) }

// header is what goes before a call's data: its signature.
type header = engine.Signature

const headerSize = engine.SignatureSize

// stageSize is how much a link can pack before it is sent: a header and a small message behind it go in one piece.
const stageSize = 1024

// link is the connection to one peer and how far the running operation has come on it.
type link struct {
	conn   transport.Conn
	placer transport.Placer // conn, if it is one
	rank   int

	// Outgoing. rest is what TrySend was given and has not taken; nothing else may be sent before it is gone.
	rest  []byte
	step  int // the step whose memory rest is; algo.None when it is of stage
	sent  int // sends that were begun, of the operation's for this peer
	stage [stageSize]byte

	// Incoming.
	met     bool   // its header has come
	odd     bool   // it is not as ours
	head    header // what it is, if odd
	taken   int    // receives that ended, of the operation's for this peer
	placed  bool   // conn was told where to write the current message
	partial [headerSize]byte
	got     int    // bytes of a header that came without the rest, in partial
	kept    []byte // of a lost peer: what was taken off conn to see how much it is, and comes before what conn shows

	pair    pairLink
	proxied *proxied // nil unless the peer is of another node, and there is a tape
}

func (l *link) reset() {
	l.rest, l.step, l.sent = nil, algo.None, 0
	l.met, l.odd, l.taken, l.placed, l.got = false, false, 0, false, 0
	if l.proxied != nil {
		l.proxied.reset()
	}
}

// pack puts h, and if it fits also the message behind it, into the stage as what goes out next. It must be empty. It
// says whether the message went along.
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

// packMessage copies a message and its padding, and returns the length of both.
func packMessage(to, message []byte) int {
	n := copy(to, message)
	pad := padding(n)
	clear(to[n : n+pad])
	return n + pad
}

// flush sends what is left of rest, as far as it goes, and returns how many bytes went.
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

// header takes a header off a window. It returns how many bytes of the window that were, and whether the header is
// complete: a transport's buffer may end in the middle of one.
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

// placeBytes is the least data for which it is worth while to tell a connection where to write it: what a read under
// way brings comes before.
const placeBytes = 512 << 10

// placeable says whether to place the rest of the current message, of so many bytes. Once a message.
func (l *link) placeable(n int) bool {
	return l.placer != nil && !l.placed && n >= placeBytes && len(l.kept) == 0
}

// place has the rest of the current message written to dst as it arrives.
func (l *link) place(dst []byte) {
	l.placer.Place(dst[:wholeWords(len(dst))])
	l.placed = true
}

// unplace has nothing more written to the current message.
func (l *link) unplace() {
	if l.placed {
		l.placer.Place(nil)
		l.placed = false
	}
}

// portion is how much of a message can be taken from a window when from bytes of size are done and limit may be: whole
// words, or up to the end if the padding is there, too. n is bytes of the message, used is those of the window.
func portion(window []byte, from, limit, size int) (n, used int) {
	n = min(limit-from, len(window))
	if pad := padding(size); from+n == size && len(window) >= n+pad {
		return n, n + pad
	}
	n = wholeWords(n)
	return n, n
}
