package tape

// ringReader reads a ring's records in order. A record's marker proves that it is the one that was asked for.
type ringReader struct {
	t      *Reader
	off    int64  // of the ring in the file
	size   uint64 // in records
	next   uint64 // index of the record to be read
	head   uint64 // records that were reserved, as of the last advance
	missed uint64
	final  bool // the writer writes no more: an incomplete record stays incomplete

	buf      []record
	from, to uint64 // the records in buf

	stuck      uint64 // index of a record that is reserved and not written yet
	stuckSince int64  // 0: none
}

// readBatch is how many records are read at a time.
const readBatch = 256

// patience is how long a reader waits for a record that was reserved and not written: the writer's thread may be gone.
const patience = int64(1e9)

// found is the result of looking for a record.
type found uint8

const (
	nothing found = iota // the record is not reserved, or not written yet
	skipped              // it was overwritten, or given up; look for the next one
	whole                // the record was read
)

func newRingReader(t *Reader, off int64, size int) ringReader {
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

// fill reads records from index on: as many as there are, fit into the buffer and are contiguous in the file.
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

// peek reads the next record into r, without moving past it.
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

// giveUp tells whether to stop waiting for the next record, which is reserved and not written.
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

// advance moves the ring's head to the one that the header has.
func (g *ringReader) advance(head uint64) error {
	if head < g.head {
		return g.t.malformed("went backwards: %d records were written, and now it says %d", g.head, head)
	}
	g.head = head
	return nil
}

// catchUp skips the records that were overwritten and, while the writer writes, an eighth of the ring more, so as not
// to be overtaken at once.
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

// tail reads the tail of the next record, the life record r, into b, and moves past both. ok is false if the tail is
// gone.
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
