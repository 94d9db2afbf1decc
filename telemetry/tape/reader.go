package tape

import (
	"cmp"
	"iter"
	"os"
	"slices"
	"sync"
)

// Reader reads a tape as it lies there, of a process that is alive or dead. It is safe for concurrent use.
type Reader struct {
	*file
	mu     sync.Mutex // guards missed
	missed Missed
}

// Open opens one process's tape. The error is a *FormatError if the file is no tape, was cut short or is corrupt, or
// the file system's.
func Open(path string) (*Reader, error) {
	return open(path, false)
}

// OpenCut is Open for a tape that may have been cut short, by a copy that broke off for instance: what is missing
// behind the header reads as if it had never been written. cut says how many bytes there are, and 0 of a whole tape.
func OpenCut(path string) (r *Reader, cut int64, err error) {
	if r, err = open(path, true); err != nil {
		return nil, 0, err
	}
	return r, r.cut, nil
}

func open(path string, partial bool) (*Reader, error) {
	t, err := openFile(path, os.O_RDONLY, partial)
	if err != nil {
		return nil, err
	}
	return &Reader{file: t}, nil
}

// Events yields all records that are still in the rings, in order: what one goroutine wrote earlier comes earlier. If
// the file can't be read to its end, the last pair has the error. Of a live process it yields what is there when it
// comes to the end.
func (r *Reader) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		missed, err := r.events(func(ev *Event) bool { return yield(*ev, nil) })
		r.mu.Lock()
		r.missed = missed
		r.mu.Unlock()
		if err != nil {
			yield(Event{}, err)
		}
	}
}

// events yields all records until yield says false. A cursor has those of the life ring and the op ring in order; the
// ordinary ones come between them by their times. That keeps cause before effect: the time of an ordinary operation's
// end was taken before the goroutine that wrote it went on to whatever it wrote next, and that has a later time.
func (r *Reader) events(yield func(*Event) bool) (missed Missed, err error) {
	ordinary, lost, err := r.ordinary() // before the other rings, as what comes before those must be known
	if err != nil {
		return missed, err
	}
	c, err := newCursor(r.file)
	if err != nil {
		return missed, err
	}
	c.finish()
	defer func() { missed = c.missed(); missed.Op += lost }()
	end := c.op.head + c.life.head // so that a busy writer can't keep it here for ever
	var ev, quiet Event
	for has := false; ; {
		if !has && (c.op.next+c.life.next < end || c.held) {
			if has, err = c.next(&ev); err != nil {
				return missed, err
			}
		}
		out := &ev
		if len(ordinary) > 0 && (!has || int64(ordinary[0][recTime]) <= ev.time()) {
			out = &quiet
			err = c.operation(&ordinary[0], out)
			ordinary = ordinary[1:]
		} else if !has {
			return missed, nil
		} else {
			has = false
		}
		if err != nil || !yield(out) {
			return missed, err
		}
	}
}

// ordinary reads the ordinary ring: its records by their times, and how many are lost. Not all that were reserved are
// written, so the tallies tell how many there were.
func (r *Reader) ordinary() (records [][recordWords]uint64, lost uint64, err error) {
	written := uint64(0)
	tallies, _ := r.AppendTallies(nil) // before the ring; corrupt ones are told to those that ask for tallies
	for i := range tallies {
		// Of a tally that is written while it is read, the later word may be the newer.
		written += tallies[i].Ordinary - min(tallies[i].sampled, tallies[i].Ordinary)
	}
	head, err := r.readWord(hdrOrdinaryHead)
	if err != nil {
		return nil, 0, err
	}
	size := uint64(r.geo.op)
	b := make([]byte, readBatch*recordSize)
	for from := uint64(0); from < min(head, size); from += readBatch {
		b = b[:min(readBatch, size-from)*recordSize]
		if err := r.readAt(b, r.geo.ordinaryOffset()+int64(from)*recordSize); err != nil {
			return nil, 0, err
		}
		for at := range len(b) / recordSize {
			var one [recordWords]uint64
			getWords(one[:], b[at*recordSize:][:recordSize])
			place, m := from+uint64(at), one[recMarker]
			ago := uint64(uint32(head) - uint32(m>>32)) // 1 for the latest
			if m != marker(m>>32, kindOrdinary, one[1:]) || ago-1 >= size || (head-ago)&(size-1) != place {
				continue
			}
			records = append(records, one)
		}
	}
	slices.SortStableFunc(records, func(a, b [recordWords]uint64) int {
		return cmp.Or(cmp.Compare(int64(a[recTime]), int64(b[recTime])), cmp.Compare(a[recOpSeq], b[recOpSeq]))
	})
	read := uint64(len(records))
	return records, max(written, read) - read, nil
}

// Missed counts the records that were gone or torn when the last Events came to them.
func (r *Reader) Missed() Missed {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missed
}

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }
