package tape

// directory knows the communicators of a tape by their numbers.
type directory struct {
	t     *file
	known map[uint32]CommInfo
	ended []uint32 // the last that ended, the oldest first

	// Those that were asked for last, by number: operations of the same few communicators follow each other. 0 is none.
	recent [16]struct {
		number uint32
		info   CommInfo
	}
}

const (
	// keepEnded is how many communicators are remembered after their end: late records may still speak of them.
	keepEnded = 1024
	// maxKnown bounds what a corrupt tape can make a reader remember.
	maxKnown = 1 << 20
)

func (d *directory) add(number uint32, info CommInfo) {
	if len(d.known) >= maxKnown {
		clear(d.known)
	}
	d.known[number] = info
	clear(d.recent[:])
}

func (d *directory) end(number uint32) {
	if len(d.ended) == keepEnded {
		delete(d.known, d.ended[0])
		d.ended = append(d.ended[:0], d.ended[1:]...)
		clear(d.recent[:])
	}
	d.ended = append(d.ended, number)
}

// find looks a communicator up, in the in-flight table if its description is not on the ring any more. Of one that is unknown the
// info is zero.
func (d *directory) find(number uint32, slot int) (CommInfo, error) {
	recent := &d.recent[number%uint32(len(d.recent))]
	if recent.number == number && number != 0 {
		return recent.info, nil
	}
	info, ok := d.known[number]
	if !ok {
		if slot >= 0 && slot < d.t.geo.slots {
			var b [slotSize]byte
			if err := d.t.readAt(b[:], d.t.geo.slotOffset()+int64(slot)*slotSize); err != nil {
				return CommInfo{}, err
			}
			if s, live, whole := decodeSlot(slot, b[:], &slotTexts{}); whole && live && s.Generation == number {
				info = s.CommInfo
			}
		}
		d.add(number, info)
	}
	recent.number, recent.info = number, info
	return info, nil
}
