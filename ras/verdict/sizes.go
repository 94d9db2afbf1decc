package verdict

import "slices"

// NCCL doesn't check that both sides of a message have the same size, as they must. The rank that has more to send, or
// to receive, waits for the rest; its peer may have done its part, and gone on.

// half is one side of a message.
type half struct {
	*participant
	call *Mark
}

// unequal finds a message that a rank of a meeting is in and whose sides have different sizes; false if there is none,
// or that isn't known.
func (m *meeting) unequal() (send, recv half, found bool) {
	if m.key.kind != exchange && m.key.kind != message {
		return half{}, half{}, false
	}
	for _, p := range m.present {
		for _, own := range m.g.launch(p.slot) {
			q := m.at(int(own.Peer))
			if !own.isMessage() || q == nil {
				continue
			}
			for other := range q.calls() {
				switch {
				case other.flow() != own.otherSide(p.slot.Rank) || other.Seq != own.Seq || other.Bytes == own.Bytes:
				case own.Call == countSend:
					return half{p, &own}, half{q, other}, true
				default:
					return half{q, other}, half{p, &own}, true
				}
			}
		}
	}
	return half{}, half{}, false
}

// unequalSizes is the verdict on a message of a meeting whose sides have different sizes; false if there is none. At
// fault is the rank whose program has always made another call here; else it is not known which of the two is.
func (w *walk) unequalSizes(m *meeting) (Verdict, bool) {
	send, recv, found := m.unequal()
	if !found || m.age < m.undecided(slices.Values([]*participant{send.participant, recv.participant})) {
		return Verdict{}, false
	}
	halves := []half{send, recv}
	wrong := slices.DeleteFunc(slices.Clone(halves), func(h half) bool { return w.oddHalf(h) == nil })
	confidence := Certain
	if len(wrong) != 1 {
		wrong, confidence = halves, Likely
	}
	var culprits []*actor
	for _, h := range wrong {
		culprits = append(culprits, h.actor)
	}
	var ends []*meeting
	for _, h := range halves {
		for _, p := range h.actor.in {
			if p.slot == h.slot {
				ends = append(ends, p.meeting)
			}
		}
	}
	v := m.verdict(Mismatch, confidence, m.ranksOf(culprits), victims(ends, culprits))
	v.ID = hash(v.Reason, v.Comm, send.slot.Rank, recv.slot.Rank, send.call.Seq)
	if len(wrong) == 1 {
		v.Text = w.oddHalf(wrong[0]).text(culpritsText(v.Culprits))
		v.Text.add(";")
	} else {
		v.Text = say("%s called for %s with different sizes, and it is not known which is wrong:",
			culpritsText(v.Culprits), m.messageText(send.call.Seq, send.slot.Rank, recv.slot.Rank))
	}
	v.Text.add(" %s called send of %d bytes, and %s recv of %d bytes%s", rankOf(send.actor, m.key.comm).in(),
		send.call.Bytes, rankOf(recv.actor, m.key.comm).in(), recv.call.Bytes, waiting(v.Victims))
	return v, true
}

// oddHalf is the odd call by which a rank made its side of a message; nil if that call isn't odd.
func (g *graph) oddHalf(h half) *Odd {
	return g.oddOf(h.actor, func(o *Odd) bool {
		return o.Did.Comm == h.slot.Comm && o.Did.Seq == h.call.Seq && countOf(o.Did.Op.Call) == h.call.Call &&
			o.Did.Op.Peer == h.call.Peer
	})
}
