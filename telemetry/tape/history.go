package tape

// history is a walk over all rings of a tape as it lies there. A cursor has the life ring and the op ring in order; the ordinary
// operations come between them by their times.
//
// That keeps cause before effect: the time of an ordinary operation's end was taken before the goroutine that wrote it went on to whatever it
// wrote next, and that has a later time.
type history struct {
	c        *cursor
	end      uint64 // of both rings of the cursor, so that a busy writer can't keep it here for ever
	ordinary pages
	next     int    // of those
	lost     uint64 // ordinary operations that are not on their ring any more

	event, quiet        Event // what came next of either
	hasEvent, doneEvent bool
}

func newHistory(t *file) (h *history, err error) {
	h = &history{}
	written := t.writtenOrdinary()                   // before they are read, so that what a live process adds meanwhile doesn't count as lost
	if h.ordinary, err = t.readPages(); err != nil { // before the other rings, as what comes before those must be known
		return nil, err
	}
	read := uint64(len(h.ordinary.items))
	h.lost = max(written, read) - read
	if h.c, err = newCursor(t, false); err != nil {
		return nil, err
	}
	h.c.finish()
	h.end = h.c.op.head + h.c.life.head
	return h, nil
}

// writtenOrdinary is how many operations were written to the ordinary ring, as the tallies know.
func (t *file) writtenOrdinary() (written uint64) {
	tallies, _ := t.appendTallies(nil) // one that is corrupt is told to who asks for them
	for i := range tallies {
		// Of a tally that is written while it is read, the later word may be the newer.
		written += tallies[i].Ordinary - min(tallies[i].sampled, tallies[i].Ordinary)
	}
	return written
}

// step is the next event; nil if there is none.
func (h *history) step() (ev *Event, err error) {
	if !h.hasEvent && !h.doneEvent {
		if h.c.op.next+h.c.life.next < h.end || h.c.held {
			if h.hasEvent, err = h.c.next(&h.event); err != nil {
				return nil, err
			}
		}
		h.doneEvent = !h.hasEvent
	}
	if h.next < len(h.ordinary.items) {
		if o := &h.ordinary.items[h.next]; !h.hasEvent || o.end <= h.event.time() {
			h.next++
			return &h.quiet, h.c.whose(&h.quiet, h.ordinary.event(o, &h.quiet))
		}
	}
	if !h.hasEvent {
		return nil, nil //nolint:nilnil // the end
	}
	h.hasEvent = false
	return &h.event, nil
}

func (h *history) missed() Missed {
	m := h.c.missed()
	m.Op += h.lost
	return m
}

// time is when it happened.
func (ev *Event) time() int64 {
	if ev.IsLife {
		return ev.Life.Time
	}
	return ev.Op.Time
}
