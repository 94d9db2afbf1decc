package tape

// history is a walk over all rings of a tape as it lies there. A cursor has the life ring and the op ring in order; the ordinary
// operations come between them by their times.
//
// That keeps cause before effect: the time of an ordinary record, and of each one in front of it on its ring, was taken before the
// goroutine that wrote it went on to whatever it wrote next, and that has a later time.
type history struct {
	c        *cursor
	end      uint64 // of both rings of the cursor, so that a busy writer can't keep it here for ever
	ordinary ringReader
	quietEnd uint64 // of that one

	event, quiet         Event // the next of each
	hasEvent, hasQuiet   bool
	doneEvent, doneQuiet bool
}

func newHistory(t *file) (*history, error) {
	h := &history{ordinary: newRingReader(t, t.geo.ordinaryOffset(), t.geo.op)}
	h.ordinary.final, h.ordinary.behind = true, h.ordinary.refresh
	if err := h.ordinary.refresh(); err != nil { // first, as what comes before those must be known
		return nil, err
	}
	h.quietEnd = h.ordinary.head
	var err error
	if h.c, err = newCursor(t, false); err != nil {
		return nil, err
	}
	h.c.finish()
	h.end = h.c.op.head + h.c.life.head
	return h, nil
}

// next is the next event; nil if there is none.
func (h *history) next() (*Event, error) {
	if err := h.fill(); err != nil {
		return nil, err
	}
	switch {
	case h.hasQuiet && (!h.hasEvent || h.quiet.time() <= h.event.time()):
		h.hasQuiet = false
		return &h.quiet, nil
	case h.hasEvent:
		h.hasEvent = false
		return &h.event, nil
	default:
		return nil, nil //nolint:nilnil // the end
	}
}

// fill looks what comes next on either side.
func (h *history) fill() (err error) {
	if !h.hasEvent && !h.doneEvent {
		if h.c.op.next+h.c.life.next < h.end || h.c.held {
			h.hasEvent, err = h.c.next(&h.event)
		}
		h.doneEvent = !h.hasEvent
	}
	for err == nil && !h.hasQuiet && !h.doneQuiet {
		h.hasQuiet, h.doneQuiet, err = h.readOrdinary()
	}
	return err
}

// readOrdinary reads one record of the ordinary ring, if it can be read.
func (h *history) readOrdinary() (ok, done bool, err error) {
	if h.ordinary.next >= h.quietEnd {
		return false, true, nil
	}
	var r [recordWords]uint64
	f, err := h.ordinary.peek(&r)
	if f != record || err != nil {
		return false, f == nothing, err
	}
	h.ordinary.next++
	if kind := uint8(r[recMarker] >> 24); kind != kindOrdinary {
		return false, false, nil // a kind that this reader does not know
	}
	return true, false, h.c.operation(&r, &h.quiet)
}

func (h *history) missed() Missed {
	m := h.c.missed()
	m.Op += h.ordinary.missed
	return m
}

// time is when it happened.
func (ev *Event) time() int64 {
	if ev.IsLife {
		return ev.Life.Time
	}
	return ev.Op.Time
}
