package verdict

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/wire"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Ranks that run the same program make the same calls in the same order, and only their progress differs. So the rank
// that is ahead has now, or had before, the same counts of calls (collectives and messages, by communicator) as the
// other rank has now. If that isn't so for most ranks that run its program, a rank made its calls in another order.

// Trail is a sequence of a rank's calls. Its JSON is one packed text, as it is long and not for people.
type Trail []Mark

// Mark is one call of a Trail.
type Mark struct {
	Slot int    // of the communicator, among the note's slots
	Call uint8  // the kind of call that is counted: a collective, a send, a receive, or a group of messages
	Seq  uint64 // its number
	// Peer is the other rank of a message, and Bytes its size, as this rank has called for it.
	Peer  int32
	Bytes uint64
	// Op is, for a call other than a message, what the ranks must agree on.
	Op tape.Signature
	// Usual says that the rank's program has always made this call here, as far as is known.
	Usual bool
	// Meets says that no rank can complete the collective before all have come to it.
	Meets bool
	// Together says that the call was made before the previous one on its communicator had returned, as in a group.
	Together bool
}

// The kinds of calls that are counted.
const (
	countCollective uint8 = iota
	countSend
	countReceive
	countGroup
	numCounts
)

func countOf(call lifecycle.Call) uint8 {
	switch call {
	case lifecycle.CallSend:
		return countSend
	case lifecycle.CallRecv:
		return countReceive
	case lifecycle.CallSendRecv, lifecycle.CallGroupEnd:
		return countGroup
	default:
		return countCollective
	}
}

func mark(slot int, c *model.Call) Mark {
	m := Mark{
		Slot: slot, Call: countOf(c.Signature.Call), Seq: c.Seq, Usual: c.Usual, Together: c.Together,
		Meets: c.Signature.Meets(),
	}
	if m.isMessage() {
		m.Peer, m.Bytes = c.Signature.Peer, c.Signature.Bytes
	} else {
		m.Op = agreed(c.Signature)
	}
	return m
}

// isMessage tells whether the call is one message, not a group of them.
func (m *Mark) isMessage() bool { return m.Call == countSend || m.Call == countReceive }

// The other fields of Mark in the byte that has its Call.
const (
	usualBit    = 0x80
	togetherBit = 0x40
	meetsBit    = 0x20
)

// maxTrail bounds a Trail from another process.
const maxTrail = 1024

// MarshalText packs the calls. Each signature is written once, as a program makes few kinds of calls.
func (t Trail) MarshalText() ([]byte, error) {
	var b []byte
	told := map[tape.Signature]int{}
	for _, m := range t {
		b = binary.AppendUvarint(b, uint64(m.Slot))
		call := m.Call
		if m.Usual {
			call |= usualBit
		}
		if m.Together {
			call |= togetherBit
		}
		if m.Meets {
			call |= meetsBit
		}
		b = append(b, call)
		b = binary.AppendUvarint(b, m.Seq)
		if m.isMessage() {
			b = binary.AppendVarint(b, int64(m.Peer))
			b = binary.AppendUvarint(b, m.Bytes)
			continue
		}
		at, known := told[m.Op]
		if !known {
			at = len(told)
			told[m.Op] = at
		}
		b = binary.AppendUvarint(b, uint64(at))
		if !known {
			b = append(b, byte(m.Op.Call), m.Op.DataType, m.Op.Reduction)
			b = binary.AppendVarint(b, int64(m.Op.Peer))
			b = binary.AppendUvarint(b, m.Op.Bytes)
		}
	}
	return base64.RawStdEncoding.AppendEncode(nil, b), nil
}

var errTrail = errors.New("verdict: a trail of calls that can't be read")

// UnmarshalText unpacks what MarshalText packed.
func (t *Trail) UnmarshalText(text []byte) error {
	b, err := base64.RawStdEncoding.AppendDecode(nil, text)
	if err != nil {
		return err
	}
	*t = nil
	var told []tape.Signature
	r := wire.NewReader(b)
	for r.Len() > 0 {
		m := Mark{Slot: r.UpTo(maxSize), Call: r.Byte(), Seq: r.Uvarint()}
		m.Usual, m.Together, m.Meets = m.Call&usualBit != 0, m.Call&togetherBit != 0, m.Call&meetsBit != 0
		m.Call &^= usualBit | togetherBit | meetsBit
		if m.isMessage() {
			m.Peer, m.Bytes = int32(r.Int()), r.Uvarint()
		} else {
			at := r.UpTo(len(told))
			if r.Err() == nil && at == len(told) {
				told = append(told, tape.Signature{
					Call: lifecycle.Call(r.Byte()), DataType: r.Byte(), Reduction: r.Byte(), Peer: int32(r.Int()),
					Bytes: r.Uvarint(),
				})
			}
			if r.Err() == nil {
				m.Op = told[at]
			}
		}
		if r.Err() != nil || m.Call >= numCounts || m.Peer < -1 || m.Peer > maxSize || len(*t) >= maxTrail {
			return errTrail
		}
		*t = append(*t, m)
	}
	return nil
}

// progress is how many calls of each kind a rank has made.
type progress map[counter]uint64

// counter names the calls of one kind on the communicators of one role; messages also by how far the peer is ahead.
type counter struct {
	role  string // of the communicator
	call  uint8
	ahead int
}

// role is a communicator's name without its number: "tp" for "tp3", as parallel groups differ by a number. In a name
// that the runtime made, "world/2", the number stays, as it is that of the split: all groups of the split have it.
// Groups without a name get such a name.
func (a *actor) role(s *Slot) string {
	if p := a.slotIn(s.Parent); p != nil {
		if s.Name == "" && s.Made > 0 {
			return fmt.Sprintf("%s/%d", a.role(p), s.Made)
		}
		if split, ok := strings.CutPrefix(s.Name, p.Name+"/"); ok && strings.Trim(split, "0123456789") == "" {
			return a.role(p) + "/" + split
		}
	}
	return strings.Trim(s.Name, "0123456789-_./ ")
}

// track is how far a rank is in its program.
type track struct {
	lane   map[string]int // by role
	now    progress
	states []progress // now, and before each of the last calls, the last one first
}

// answer is an answer about calls that may be older than a trail.
type answer int8

const (
	no answer = iota - 1
	maybe
	yes
)

// count adds the calls that a rank has made on one communicator.
func (p progress) count(a *actor, s *Slot) {
	set := func(call uint8, ahead int, n uint64) {
		if n > 0 {
			p[counter{a.role(s), call, ahead}] += n
		}
	}
	set(countCollective, 0, s.Begun)
	set(countGroup, 0, s.Groups)
	if s.Groups > 0 { // the counts are of single messages and of those in groups, which the trail doesn't show
		return
	}
	for peer, m := range s.Messages {
		set(countSend, s.ahead(peer), m.Sent)
		set(countReceive, s.ahead(peer), m.Received)
	}
}

// made is how many calls a rank has made, also on communicators that it has ended.
func (a *actor) made() progress {
	if a.calls == nil {
		a.calls = progress{}
		for _, s := range a.slots {
			if s.Size > 1 {
				a.calls.count(a, s)
			}
		}
	}
	return a.calls
}

func trackOf(a *actor) *track {
	t := &track{lane: map[string]int{}, now: progress{}}
	for _, s := range a.slots {
		if s.Size < 2 || s.Left != nil {
			continue
		}
		t.lane[a.role(s)] = s.Lane
		t.now.count(a, s)
	}
	t.states = append(t.states, t.now)
	if a.habit == nil {
		return t
	}
	before := t.now
	for i := len(a.habit.Trail) - 1; i >= 0; i-- {
		m := &a.habit.Trail[i]
		if m.Slot >= len(a.note.Slots) {
			continue
		}
		s := &a.note.Slots[m.Slot]
		key := counter{role: a.role(s), call: m.Call}
		if m.isMessage() {
			if s.Groups > 0 {
				continue
			}
			key.ahead = s.ahead(m.Peer)
		}
		if before[key] == 0 {
			break
		}
		before = maps.Clone(before)
		before[key]--
		t.states = append(t.states, before)
	}
	return t
}

// ahead is how far a rank is ahead of the slot's, around the ring of the communicator's ranks. In a communicator of
// two, rank 0 is 1 behind rank 1.
func (s *Slot) ahead(rank int32) int {
	d := int(rank) - s.Rank
	if s.Size > 2 && d < 0 {
		d += s.Size
	}
	return d
}

// apart is how many counters only one of two ranks has.
func (t *track) apart(o *track) (n int) {
	n = len(t.now) + len(o.now)
	for key := range t.now {
		if _, has := o.now[key]; has {
			n -= 2
		}
	}
	return n
}

// behind compares two states of t and other in one lane: whether any counter is less in p than in o, and whether any is
// more. A communicator of a role that only one of the ranks has says nothing: one rank of each process may have a
// heartbeat's.
func (t *track) behind(other *track, p, o progress, lane int) (less, more bool) {
	for _, counters := range []progress{p, o} {
		for key := range counters {
			own, has := t.lane[key.role]
			if _, both := other.lane[key.role]; both && has && own == lane {
				less, more = less || p[key] < o[key], more || p[key] > o[key]
			}
		}
	}
	return less, more
}

// lanes are the lanes of the rank's communicators.
func (t *track) lanes() map[int]bool {
	lanes := map[int]bool{}
	for _, lane := range t.lane {
		lanes[lane] = true
	}
	return lanes
}

// inStep tells whether, in every lane, one of two ranks is where the other one is, or was.
func (t *track) inStep(o *track) answer {
	in := yes
	for lane := range t.lanes() {
		in = min(in, max(t.was(o, o.states, t.now, lane), t.was(o, t.states, o.now, lane)))
	}
	return in
}

// was tells whether one of the states, the last one first, equals p, in a lane of t; they are t's and other's.
func (t *track) was(other *track, states []progress, p progress, lane int) answer {
	for _, state := range states {
		less, more := t.behind(other, p, state, lane)
		switch {
		case !less && !more:
			return yes
		case more: // that state was behind already
			return no
		}
	}
	return maybe
}

// inStep reports whether a rank makes its calls in the same order as most of the ranks that run the same program, or in
// another one. Either answer takes two such ranks at least.
func (g *graph) inStep(a *actor) answer {
	in, out := 0, 0
	for _, o := range g.alike(a) {
		switch a.track.inStep(o.track) {
		case yes:
			in++
		case no:
			if a.track.met(o.track) {
				out++
			}
		case maybe:
		}
	}
	switch {
	case out > in && out > 1:
		return no
	case in > out && in > 1:
		return yes
	default:
		return maybe
	}
}

// leftTwin reports whether a rank of a cycle was in step with the only other rank that runs its program, and no longer
// is. Either may be wrong, but if the other one is in no cycle, it goes on.
func (w *walk) leftTwin(a *actor) bool {
	twins := w.alike(a)
	if len(twins) != 1 || !a.track.wereInStep(twins[0].track) || w.inKnot(twins[0]) {
		return false
	}
	return a.track.inStep(twins[0].track) == no
}

// inKnot tells whether a rank is in meetings that wait for each other.
func (w *walk) inKnot(a *actor) bool {
	return slices.ContainsFunc(w.knots, func(knot []*meeting) bool {
		return slices.ContainsFunc(a.in, func(p *participant) bool { return slices.Contains(knot, p.meeting) })
	})
}

// alike are the ranks that run the same program as a rank: its mates; if it has fewer than two, the ranks with the same
// counters; if there are none, the ranks whose counters differ by one. Counters prove little: unless they are equal and
// their ranks all in step with each other, unlike the stages of a pipeline, only ranks that were in step with the rank
// count, and those of its stage that it is behind: a late rank may be further behind than their trails go back.
func (g *graph) alike(a *actor) []*actor {
	nearest := 1
	for _, o := range g.actors {
		if o.track == nil {
			o.track = trackOf(o)
		}
	}
	if mates := g.mates(a); len(mates) > 1 {
		return mates
	}
	for _, o := range g.actors {
		if o != a {
			nearest = min(nearest, a.track.apart(o.track))
		}
	}
	near := slices.DeleteFunc(slices.Clone(g.actors), func(o *actor) bool {
		return o == a || a.track.apart(o.track) > nearest
	})
	if nearest == 0 && len(near) > 1 && !slices.ContainsFunc(near[1:], func(o *actor) bool {
		return near[0].track.inStep(o.track) == no
	}) {
		return near
	}
	return slices.DeleteFunc(near, func(o *actor) bool {
		return !a.track.wereInStep(o.track) && !a.behindInStage(o)
	})
}

// behindMost is the part of its calls of each kind by which a rank is at most behind another one of its program: a few
// steps of many.
const behindMost = 1.0 / 8

// behindInStage reports whether a rank is behind another one of the same stage of parallel pipelines, for all that is
// known: they have the same place in groups of the same role and size that exchange messages, and the rank has made
// somewhat fewer calls of each kind.
func (a *actor) behindInStage(o *actor) bool {
	same := false
	for _, s := range a.slots {
		if !s.hasMessages() || o.slotIn(s.Comm) != nil {
			continue
		}
		same = slices.ContainsFunc(o.slots, func(t *Slot) bool {
			return t.Rank == s.Rank && t.Size == s.Size && o.role(t) == a.role(s)
		})
		if !same {
			return false
		}
	}
	if !same || len(a.track.now) != len(o.track.now) {
		return false
	}
	for key, n := range o.track.now {
		if own := a.track.now[key]; own > n || float64(n-own) > behindMost*float64(n) {
			return false
		}
	}
	return true
}

// leastInStep is how many calls two ranks must have made in one order to be known to run the same program.
const leastInStep = 16

// wereInStep reports whether one of two ranks was where the other one was for most of its trail, from its beginning on.
func (t *track) wereInStep(o *track) bool {
	known, in := 0, 0
	for _, p := range slices.Backward(t.states[1:]) {
		at := t.at(o, p)
		if at == yes && in == known {
			in++
		}
		if at != maybe {
			known++
		}
	}
	return in >= leastInStep && 2*in >= known
}

// met reports whether one of two ranks was where the other one had been when its trail began. If not, they have
// differed for longer: one of them may make calls that the other one is not meant to make.
func (t *track) met(o *track) bool {
	began := func(a, b *track) answer {
		if len(a.states) < 2 {
			return maybe
		}
		return a.at(b, a.states[len(a.states)-1])
	}
	return cmp.Or(began(t, o), began(o, t)) == yes
}

// at reports whether o is, or was, in every lane where t was when it was at p.
func (t *track) at(o *track, p progress) answer {
	at := yes
	for lane := range t.lanes() {
		was := t.was(o, o.states, p, lane)
		if was == maybe {
			return maybe
		}
		at = min(at, was)
	}
	return at
}

// mates are the other ranks of those communicators of a rank that carry no messages and whose other ranks have equal
// counters: the ranks of such a communicator run one program. So do those of a pipeline's stage, but not of the
// pipeline.
func (g *graph) mates(a *actor) (some []*actor) {
	for _, s := range a.slots {
		if s.Size < 3 || s.Size >= g.size || s.Groups > 0 || len(s.Messages) > 0 || s.Left != nil {
			continue
		}
		var others []*actor
		for p := range g.members(s) {
			if p.actor != a {
				others = append(others, p.actor)
			}
		}
		other := func(o *actor) bool { return others[0].track.apart(o.track) > 0 }
		if len(others) > 1 && !slices.ContainsFunc(others, other) {
			some = append(some, others...)
		}
	}
	return some
}

// calledElsewhere is how many ranks made a call with this signature, under the meeting's number, on other communicators
// of the same role.
func (g *graph) calledElsewhere(m *meeting, sig tape.Signature) (n int) {
	want, role := agreed(sig), m.present[0].actor.role(m.slot)
	for _, a := range g.actors {
		if a.habit == nil {
			continue
		}
		for _, c := range a.habit.Trail {
			if c.Slot >= len(a.note.Slots) || c.Call != countCollective || c.Seq != m.key.seq || c.Op != want {
				continue
			}
			if s := &a.note.Slots[c.Slot]; s.Comm != m.key.comm && s.Name != "" && a.role(s) == role {
				n++
			}
		}
	}
	return n
}
