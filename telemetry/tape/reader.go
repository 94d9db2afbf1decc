package tape

import (
	"iter"
	"os"
)

// Open opens one process's tape. The error is a *FormatError if the file is no tape, was cut short or is corrupt, or
// the file system's error.
func Open(path string) (*Reader, error) { return openFile(path, os.O_RDONLY, false) }

// OpenCut is Open for a tape that may have been cut short, for instance by an interrupted copy: missing parts behind
// the header read as if they had never been written. cut is the number of bytes in the file; 0 for a whole tape.
func OpenCut(path string) (t *Reader, cut int64, err error) {
	if t, err = openFile(path, os.O_RDONLY, true); err != nil {
		return nil, 0, err
	}
	return t, t.cut, nil
}

// Events yields all records that are still in the rings, in order: records of one goroutine stay in the order of
// writing. If the file can't be read to its end, the last pair has the error. If the process is alive, records that it
// writes meanwhile may be left out.
func (t *Reader) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := t.events(func(ev *Event) bool { return yield(*ev, nil) }); err != nil {
			yield(Event{}, err)
		}
	}
}

// events yields all records until yield returns false. A cursor merges the life ring and the op ring; records of the
// ordinary ring are merged in by time. That keeps cause before effect: whatever a goroutine writes after an ordinary
// operation's end has a later time than that end.
func (t *Reader) events(yield func(*Event) bool) error {
	ordinary, lost, err := t.ordinary() // read first: its records may come before all others
	if err != nil {
		return err
	}
	c, err := newCursor(t)
	if err != nil {
		return err
	}
	c.finish()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.missed = c.missed()
		t.missed.Op += lost
	}()
	end := c.op.head + c.life.head // so that a busy writer can't keep the reader here for ever
	var ev, quiet Event
	for has := false; ; {
		if !has && (c.op.next+c.life.next < end || c.held) {
			if has, err = c.next(&ev); err != nil {
				return err
			}
		}
		out := &ev
		if len(ordinary) > 0 && (!has || int64(ordinary[0][recTime]) <= ev.Time()) {
			out = &quiet
			err = c.operation(&ordinary[0], out)
			ordinary = ordinary[1:]
		} else if !has {
			return nil
		} else {
			has = false
		}
		if err != nil || !yield(out) {
			return err
		}
	}
}

// Missed counts the records that were gone or torn when the last Events reached them.
func (t *Reader) Missed() Missed {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.missed
}

// Close closes the file.
func (t *Reader) Close() error { return t.f.Close() }
