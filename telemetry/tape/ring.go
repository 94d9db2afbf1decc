package tape

// ringReader walks over a ring's records, each of which proves by its marker that it is the one that was looked for.
type ringReader struct {
	t      *file
	off    int64  // of the ring in the file
	size   uint64 // in records
	next   uint64 // index of the record to be read
	head   uint64 // how many were reserved, as far as known
	missed uint64
	final  bool // nothing is being written any more: what isn't whole never will be

	buf      []record
	from, to uint64 // the records in buf

	stuck      uint64 // index of the record that is waited for
	stuckSince int64  // 0: none
}

// readBatch is how many records are read at a time.
const readBatch = 256

// patience is how long a reader waits for a record that was reserved and not written: its thread may be gone for ever.
const patience = int64(1e9)

// found is what looking for a record came to.
type found uint8

const (
	nothing found = iota // it is not there: not reserved, or not written yet
	skipped              // it was overwritten, or given up; look for the next one
	whole                // it is there
)

func newRingReader(t *file, off int64, size int) ringReader {
	return ringReader{t: t, off: off, size: uint64(size), buf: make([]record, readBatch)}
}

// look reads the record with an index below head into r.
func (g *ringReader) look(index uint64, r *record) (found, error) {
	for fresh := false; ; fresh = true {
		if fresh || index < g.from || index >= g.to {
			if err := g.fill(index); err != nil {
				return nothing, err
			}
			fresh = true
		}
		*r = g.buf[index-g.from]
		m := r[recMarker]
		ahead := int32(uint32(m>>32) - uint32(index))
		switch {
		case m != 0 && m == marker(index, kindOf(m), r[1:]):
			return whole, nil
		case m != 0 && ahead > 0:
			return skipped, nil
		case fresh || g.final:
			return nothing, nil
		}
	}
}

// fill reads as many records from index on as there are, fit into the buffer and lie side by side.
func (g *ringReader) fill(index uint64) error {
	at := index & (g.size - 1)
	n := min(readBatch, g.size-at, g.head-index)
	g.from, g.to = index, index
	if err := g.t.readAt(bytesOf(g.buf[:n]), g.off+int64(at)*recordSize); err != nil {
		return err
	}
	g.to = index + n
	return nil
}

// peek reads the next record into r, without going over it.
func (g *ringReader) peek(r *record) (found, error) {
	if g.next == g.head {
		return nothing, nil
	}
	if g.head-g.next > g.size {
		g.catchUp()
		return skipped, nil
	}
	f, err := g.look(g.next, r)
	switch {
	case err != nil:
		return nothing, err
	case f == whole:
		g.stuckSince = 0
		return whole, nil
	case f == skipped || g.giveUp():
		g.skip(1)
		return skipped, nil
	}
	return nothing, nil
}

// giveUp decides about a record that isn't written.
func (g *ringReader) giveUp() bool {
	if g.final || g.head-g.next > g.size/2 {
		return true
	}
	now := Now()
	if g.stuckSince == 0 || g.stuck != g.next {
		g.stuck, g.stuckSince = g.next, now
	}
	return now-g.stuckSince > patience
}

// advance takes the head from the header.
func (g *ringReader) advance(head uint64) error {
	if head < g.head {
		return g.t.malformed("went backwards: %d records were written, and now it says %d", g.head, head)
	}
	g.head = head
	return nil
}

// catchUp goes over what was overwritten, and a bit more while the writer is at it: else it would be overtaken at once.
func (g *ringReader) catchUp() {
	oldest := g.head - min(g.head, g.size)
	if !g.final {
		oldest = min(oldest+g.size/8, g.head)
	}
	g.skip(max(oldest, g.next+1) - g.next)
}

func (g *ringReader) skip(n uint64) {
	g.next += n
	g.missed += n
	g.stuckSince = 0
}

// tail reads the tail of the life record r, which is the next, into b, and goes over both; ok is false if it is gone.
func (g *ringReader) tail(r *record, b *[maxTail]byte) (tail []byte, ok bool, err error) {
	size := uint64(uint32(high32(r[recLifePeer])))
	more := (size + tailPerRecord - 1) / tailPerRecord
	if size > maxTail || more >= g.head-g.next {
		g.skip(1) // corrupt
		return nil, false, nil
	}
	for i := range more {
		var c record
		f, err := g.look(g.next+1+i, &c)
		if err != nil {
			return nil, false, err
		}
		if f != whole || kindOf(c[recMarker]) != kindContinue {
			g.skip(1 + more)
			return nil, false, nil
		}
		copy(b[i*tailPerRecord:], bytesOf(c[1:]))
	}
	g.next += 1 + more
	return b[:size], true, nil
}
