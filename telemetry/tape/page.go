package tape

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
)

// openPage is the page of the ordinary ring that a communicator writes. A page has one communicator, whose turn orders what is written,
// and what is the same as in the operation before isn't written again: an operation like the one before is one word. What changes with each
// is in operations.
type openPage struct {
	words *[pageWords]uint64 // nil: none
	head  *uint64            // the ring's
	safe  uint64             // the page is this communicator's until head is there
	lap   uint64             // lapBit of its index
	kind  uint64             // opKind.id of the last operation
}

// putOrdinary writes the end of an ordinary operation.
func (c *CommWriter) putOrdinary(k *opKind, number uint64, start, end int64) {
	o, at := &c.page, c.op
	if o.words == nil || at.pageUsed == pageWords || atomic.LoadUint64(o.head) > o.safe {
		c.turnPage(k, number, start, end)
		return
	}
	after, took := uint64(start-at.pageStart), uint64(end-start)
	switch {
	case number == at.pageNumber+1 && after-1 < maxShort-1 && took < maxShort && k.id == o.kind:
		storeRelease(&o.words[at.pageUsed%pageWords], after<<32|o.lap|took)
		at.pageUsed++
		at.pageNumber, at.pageStart = number, start
	case at.pageUsed+longWords <= pageWords:
		to := (*[longWords]uint64)(o.words[at.pageUsed:])
		putLong((*[longWords - 1]uint64)(to[1:]), k, number, start, end)
		storeRelease(&to[0], longItem|o.lap)
		at.pageUsed += longWords
		c.remember(k, number, start)
	default:
		c.turnPage(k, number, start, end)
	}
}

func (c *CommWriter) remember(k *opKind, number uint64, start int64) {
	c.page.kind, c.op.pageNumber, c.op.pageStart = k.id, number, start
}

// turnPage begins a page with an operation.
func (c *CommWriter) turnPage(k *opKind, number uint64, start, end int64) {
	o, g := &c.page, &c.w.ordinaryRing
	index := atomic.AddUint64(g.head, 1) - 1
	o.words, o.lap = (*[pageWords]uint64)(g.words[(index&g.mask)*pageWords:]), lapBit(index, g.mask+1)
	o.head, o.safe = g.head, index+g.mask-g.mask/4 // another's soon, who needs it after a whole lap
	atomic.SwapUint64(&o.words[recMarker], 0)      // before all else is changed
	clear(o.words[pageItems:])
	o.words[pageComm], o.words[pageComm+6] = pack32(int32(c.number), int32(c.index)), 0
	putLong((*[longWords - 1]uint64)(o.words[pageFirst:]), k, number, start, end)
	storeRelease(&o.words[recMarker], marker(index, kindPage, foldRecord(index, (*[recordWords]uint64)(o.words[:recordWords]))))
	c.op.pageUsed = pageItems
	c.remember(k, number, start)
}

// lapBit is the bit of the first word of each item on a page, by which one shows that its writer stored a lap too late.
func lapBit(index, pages uint64) uint64 { return index / pages & 1 << lapShift }

// putLong writes all of an operation.
func putLong(to *[longWords - 1]uint64, k *opKind, number uint64, start, end int64) {
	to[longKinds], to[longNumber], to[longBytes] = k.kinds|uint64(uint32(k.peer))<<32, number, k.bytes
	to[longStart], to[longEnd] = uint64(start), uint64(end)
}

// ordinary is an operation on a page.
type ordinary struct {
	start, end int64
	number     uint64
	kind       uint32 // in pages.kinds
}

// pages are the operations of the ordinary ring.
type pages struct {
	kinds []pageKind
	items []ordinary // by their ends
}

// pageKind is what many have in common.
type pageKind struct{ comm, kinds, bytes uint64 } // kinds with the peer, as in longKinds

// pageBatch is how many pages are read at a time.
const pageBatch = 64

// readPages reads the ordinary ring.
func (t *file) readPages() (p pages, err error) {
	head, err := t.readWord(hdrOrdinaryHead)
	if err != nil {
		return p, err
	}
	n := t.geo.pages()
	b, again := make([]byte, pageBatch*pageSize), make([]byte, pageBatch*pageSize)
	for from := 0; from < n && uint64(from) < head; from += pageBatch {
		count := min(pageBatch, n-from)
		at := t.geo.ordinaryOffset() + int64(from)*pageSize
		// Twice: one of which the marker is the same in the second reading did not begin anew in between.
		for _, b := range [][]byte{b, again} {
			if err := t.readAt(b[:count*pageSize], at); err != nil {
				return p, err
			}
		}
		for i := range count {
			page := b[i*pageSize:][:pageSize]
			if string(page[:wordSize]) == string(again[i*pageSize:][:wordSize]) {
				p.read(page, uint64(from+i), head, uint64(n))
			}
		}
	}
	slices.SortFunc(p.items, func(a, b ordinary) int {
		return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.number, b.number)) // of one communicator, two may end at one time
	})
	return p, nil
}

// read reads a page of n, at a place.
func (p *pages) read(b []byte, place, head, n uint64) {
	var w [pageWords]uint64
	getWords(w[:], b)
	m := w[recMarker]
	age := uint32(head) - uint32(m>>32) // 1 for the latest
	index := head - uint64(age)
	if m == 0 || age == 0 || uint64(age) > n || index&(n-1) != place || m != marker(index, kindPage, foldRecord(index, (*[recordWords]uint64)(w[:recordWords]))) {
		return
	}
	comm := w[pageComm]
	last := p.add(comm, (*[longWords - 1]uint64)(w[pageFirst:]))
	lap := lapBit(index, n)
	for at := pageItems; at < pageWords && w[at] != 0; {
		if w[at]&(1<<lapShift) != lap {
			return // another communicator's; what was here is lost, and what follows isn't known without it
		}
		if w[at]&longItem == 0 {
			last.number++
			last.start += int64(w[at] >> 32)
			last.end = last.start + int64(w[at]&(maxShort-1))
			p.items = append(p.items, last)
			at++
			continue
		}
		if at+longWords > pageWords {
			return // corrupt
		}
		last = p.add(comm, (*[longWords - 1]uint64)(w[at+1:]))
		at += longWords
	}
}

// add adds an operation that is there in full.
func (p *pages) add(comm uint64, w *[longWords - 1]uint64) ordinary {
	kind := pageKind{comm, w[longKinds], w[longBytes]}
	if n := len(p.kinds); n == 0 || p.kinds[n-1] != kind {
		p.kinds = append(p.kinds, kind)
	}
	item := ordinary{start: int64(w[longStart]), end: int64(w[longEnd]), number: w[longNumber], kind: uint32(len(p.kinds) - 1)}
	p.items = append(p.items, item)
	return item
}

// event is an operation as an event, but for its communicator.
func (p *pages) event(o *ordinary, ev *Event) (comm uint64) {
	k := &p.kinds[o.kind]
	if ev.IsLife {
		ev.Life, ev.IsLife = LifeRecord{}, false
	}
	ev.Op = OpRecord{
		Time: o.end, Stage: StageEnd, Seq: o.number, Algorithm: uint8(k.kinds >> 24), Wait: -1, Start: o.start, Tallied: true, Ordinary: true,
		Signature: Signature{
			Call: lifecycle.Call(uint8(k.kinds)), DataType: uint8(k.kinds >> 8), Reduction: uint8(k.kinds >> 16), Peer: high32(k.kinds), Bytes: k.bytes,
		},
	}
	return k.comm
}
