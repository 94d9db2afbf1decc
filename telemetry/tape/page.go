package tape

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// putOrdinary writes the end of an ordinary operation onto the communicator's page; ok is false if there is none. An
// operation like the previous one takes a single word, so that several share a cache line: writing cache lines costs
// most. Nobody else writes the page until the communicator leaves it.
func (c *CommWriter) putOrdinary(p *pending, now int64) (ok bool) {
	o := c.op
	after, took := uint64(p.start-o.pageStart), uint64(now-p.start)
	if c.tally.paged && o.pageUsed < pageWords && p.number == o.pageNumber+1 && after>>32 == 0 && took <= maxRepeat {
		storeRelease(&c.page[o.pageUsed%pageWords], after<<32|repeatBit|took)
		o.pageUsed++
	} else {
		if o.pageUsed+recordWords > pageWords && !c.turnPage() {
			return false
		}
		to := (*record)(c.page[o.pageUsed:])
		c.put(to, c.pageAt, kindOrdinary, p, now, StageEnd, PhaseNone, -1, 0)
		o.pageUsed += recordWords
		c.tally.paged = true
	}
	o.pageNumber, o.pageStart = p.number, p.start
	return true
}

// turnPage takes the oldest page that no communicator writes, if one of the next few is free, and clears it.
func (c *CommWriter) turnPage() (ok bool) {
	c.givePage()
	w := c.w
	for range 8 {
		index := atomic.AddUint64(&w.ordinaryHead, 1) - 1
		place := index & uint64(len(w.written)-1)
		if w.written[place].CompareAndSwap(false, true) {
			c.page, c.pageAt, c.op.pageUsed = &w.ordinary[place], index, 0
			atomic.SwapUint64(&c.page[0], 0) // before anything else changes
			clear(c.page[1:])
			return true
		}
	}
	return false
}

// givePage gives up the communicator's page, for others to overwrite.
func (c *CommWriter) givePage() {
	if c.page != nil {
		c.w.written[c.pageAt&uint64(len(c.w.written)-1)].Store(false)
		c.page, c.op.pageUsed = nil, pageWords
	}
}

// pageBatch is how many pages are read at a time.
const pageBatch = 64

// ordinary reads the ordinary ring: its records, sorted by time, and how many are lost according to the tallies.
func (t *Reader) ordinary() (records []record, lost uint64, err error) {
	written := uint64(0)
	tallies, _ := t.AppendTallies(nil) // before the ring; AppendTallies' callers report corrupt ones
	for i := range tallies {
		// If a tally is written while it is read, the later word may be newer.
		written += tallies[i].Ordinary - min(tallies[i].sampled, tallies[i].Ordinary)
	}
	now, err := t.readChanging()
	if err != nil {
		return nil, 0, err
	}
	read, again := make([]page, pageBatch), make([]page, pageBatch)
	for all, from := t.geo.pages(), 0; from < all && uint64(from) < now.ordinaryHead; from += pageBatch {
		n := min(pageBatch, all-from)
		at := t.geo.ordinaryOffset() + int64(from)*pageSize
		if err := cmp.Or(t.readAt(bytesOf(read[:n]), at), t.readAt(bytesOf(again[:n]), at)); err != nil {
			return nil, 0, err
		}
		for i := range n {
			// A page with the same first word in both readings was not started anew in between.
			if first := read[i][0]; first == again[i][0] && first>>32&uint64(all-1) == uint64(from+i) {
				records = appendPage(records, &read[i])
			}
		}
	}
	slices.SortStableFunc(records, func(a, b record) int {
		return cmp.Or(cmp.Compare(int64(a[recTime]), int64(b[recTime])), cmp.Compare(a[recSeq], b[recSeq]))
	})
	n := uint64(len(records))
	return records, max(written, n) - n, nil
}

// appendPage appends what is on a page, up to the first word that is neither a repeat nor begins a whole record.
func appendPage(records []record, page *page) []record {
	var r record
	for at := 0; at < pageWords; {
		switch w := page[at]; {
		case w&repeatBit != 0 && at > 0:
			r[recSeq]++
			r[recStart] += w >> 32
			r[recTime] = r[recStart] + w&maxRepeat
			at++
		case w != 0 && at+recordWords <= pageWords &&
			w == marker(page[0]>>32, kindOrdinary, page[at+1:][:recordWords-1]):
			copy(r[:], page[at:])
			at += recordWords
		default:
			return records
		}
		records = append(records, r)
	}
	return records
}
