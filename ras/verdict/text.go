package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

const abort = tape.ActAbort

// verdict returns a verdict that shows at the meeting, without a text.
func (m *meeting) verdict(reason Reason, c Confidence, culprits []Rank, victims []Wait) Verdict {
	slices.SortFunc(culprits, byRank)
	v := Verdict{
		Reason: reason, Confidence: c, Culprits: culprits, Victims: victims, Comm: m.key.comm, Name: m.slot.Name,
		Call: m.call(m.slot), Seq: m.key.seq, Age: Age(m.age),
	}
	v.setID()
	return v
}

// call is the name of a meeting's call.
func (m *meeting) call(s *Slot) string {
	switch m.key.kind {
	case joining:
		return tape.ActInit.String()
	case broken:
		return s.Failure.Call.String()
	case leaving:
		return s.ending().Act.String()
	case exchange:
		if s.inCountedMessages() {
			return lifecycle.CallGroupEnd.String()
		}
	case collective, message:
	}
	return s.Op.Call.String()
}

// ranksOf names actors, in order.
func (m *meeting) ranksOf(actors []*actor) (ranks []Rank) {
	for _, a := range actors {
		ranks = append(ranks, rankOf(a, m.key.comm))
	}
	slices.SortFunc(ranks, byRank)
	return ranks
}

// actorsOf are the actors of participants.
func actorsOf(some []*participant) (actors []*actor) {
	for _, p := range some {
		actors = append(actors, p.actor)
	}
	return actors
}

// text is a meeting as a sentence has it: `all_reduce 41 on "world"`.
func (m *meeting) text() Text {
	switch m.key.kind {
	case joining:
		return say("the init of %s", commText(m.slot))
	case leaving:
		return say("the %s of %s", m.slot.ending().Act, commText(m.slot))
	case message:
		return m.messageText(m.key.seq, m.key.from, m.key.to)
	case exchange:
		if s := m.slot; s.inCountedMessages() {
			switch launch := m.g.launch(s); {
			case len(launch) != 1, launch[0].Call == countCollective:
			case launch[0].Call == countSend:
				return m.messageText(launch[0].Seq, s.Rank, int(launch[0].Peer))
			default:
				return m.messageText(launch[0].Seq, int(launch[0].Peer), s.Rank)
			}
			return callText(lifecycle.CallGroupEnd.String(), 0, m.slot)
		}
		return callText(m.slot.Op.Call.String(), 0, m.slot)
	case broken:
		return say("%s", commText(m.slot))
	default:
		return callText(m.slot.Op.Call.String(), m.key.seq, m.slot)
	}
}

func (m *meeting) messageText(number uint64, from, to int) Text {
	return say("message %d from %s to %s on %s", number, m.rank(from), m.rank(to), commText(m.slot))
}

// rank names a rank of the meeting's communicator, by its rank in the job where that is known.
func (m *meeting) rank(comm int) string { return m.g.rankAt(m.slot, comm).String() }

// callText is a call as a sentence has it. An act has the number that logs and traces give it, not the number of the
// collective by which the ranks agree on it.
func callText(call string, seq uint64, s *Slot) Text {
	if call == lifecycle.CallGroupEnd.String() {
		return say("a group of messages on %s", commText(s))
	}
	if !s.Op.Call.IsOperation() && call == s.Op.Call.String() {
		i := slices.IndexFunc(s.Acts, func(a OpenAct) bool { return a.Act.String() == call && a.Seq > 0 })
		if i < 0 {
			return say("a %s of %s", call, commText(s))
		}
		return say("%s %d of %s", call, s.Acts[i].Seq, commText(s))
	}
	if seq == 0 {
		return say("%s on %s", call, commText(s))
	}
	return say("%s %d on %s", call, seq, commText(s))
}

// commText is a communicator as a sentence has it: `"world"`, or its id if it has no name.
func commText(s *Slot) string { return quoted(s.Name, s.Comm) }

func quoted(name string, id lifecycle.CommID) string {
	if name == "" {
		return id.Short()
	}
	return strconv.Quote(name)
}

// culpritsText names ranks as a list, with the host and the process if all are of one process.
func culpritsText(ranks []Rank) string {
	text := ranksText(ranks)
	if len(ranks) == 0 {
		return text
	}
	switch r := ranks[0]; {
	case r.Host == "" || r.Job < 0 && r.Comm < 0,
		slices.ContainsFunc(ranks, func(o Rank) bool { return o.Member != r.Member }):
		return text
	case r.PID > 0:
		return text + fmt.Sprintf(" (%s, pid %d)", words.Line(r.Host), r.PID)
	default:
		return text + fmt.Sprintf(" (%s)", words.Line(r.Host))
	}
}

// waiting is the end of a sentence that names the ranks that wait.
func waiting(victims []Wait) string {
	var wait, ended []Rank
	for _, w := range victims {
		r := w.Rank
		if r.Job >= 0 {
			r.Comm, r.comm = -1, ""
		}
		if w.Ended {
			ended = append(ended, r)
		} else {
			wait = append(wait, r)
		}
	}
	text := ""
	for _, part := range []struct {
		ranks     []Rank
		one, some string // their verbs
	}{{wait, "waits", "wait"}, {ended, "waited, and has ended", "waited, and have ended"}} {
		ranks := part.ranks
		slices.SortFunc(ranks, byRank)
		ranks = slices.CompactFunc(ranks, func(a, b Rank) bool { return byRank(a, b) == 0 })
		switch {
		case len(ranks) == 0:
		case len(ranks) == 1:
			text += fmt.Sprintf("; %s %s", ranks[0], part.one)
		case slices.ContainsFunc(ranks, func(r Rank) bool { return r.Job < 0 }):
			text += fmt.Sprintf("; %d ranks %s", len(ranks), part.some)
		default:
			text += fmt.Sprintf("; %s %s", ranksText(ranks), part.some)
		}
	}
	return text
}

// lastCall is the last call of an actor that is missing in a meeting, as the end of a sentence: in the meeting's lane,
// if there was one.
func lastCall(m *meeting, a *actor) Text {
	if s := a.slotIn(m.key.comm); s != nil && m.cameLate(s) {
		return say("; it came %s ago", Age(s.Age+s.Took))
	}
	var last *Slot
	for _, s := range a.slots {
		switch {
		case s.Op.Call == lifecycle.CallNone || s.InFlight > 0:
		case last == nil, m.inOtherLane(last) && !m.inOtherLane(s),
			s.Age < last.Age && m.inOtherLane(last) == m.inOtherLane(s):
			last = s
		}
	}
	if f := a.failed(); f != nil && (last == nil || f.Age < last.Age) {
		return say("; its last, the %s of %s, failed %s ago", f.Act, quoted(f.Name, f.Comm), Age(f.Age))
	}
	if last == nil {
		return say("; it has made no call on any communicator yet")
	}
	ended, seq := "ended", last.Seq
	switch {
	case last.Refused:
		ended, seq = "was refused", 0
	case last.Unproven:
		ended = "returned"
	}
	return say("; its last, %s, %s %s ago", callText(last.Op.Call.String(), seq, last), ended, Age(last.Age))
}

// failed is the last act that the actor ended, if that failed; else nil.
func (a *actor) failed() *FailedAct {
	if a.habit == nil {
		return nil
	}
	return a.habit.Failed
}

// attendance says how many ranks are in a meeting.
func attendance(m *meeting) Text {
	if m.until > 0 {
		n := len(m.present)
		return say("%d of %d ranks %s in %s", n, m.slot.Size, english.PluralWord(n, "was", "were"), m.text())
	}
	in := "in"
	if len(m.missing)+len(m.absent) == 0 && len(m.present) < m.slot.Size { // the others have completed it
		in = "still in"
	}
	n, what, age := len(m.present), m.text(), m.age
	if m.slot.inCountedMessages() { // each rank's messages are a meeting
		n, what = 0, say("messages on %s", commText(m.slot))
		for _, o := range m.g.order {
			if o.key.comm == m.key.comm && o.key.kind == exchange {
				n, age = n+len(o.present), max(age, o.age)
			}
		}
	}
	text := say("%d of %d ranks %s %s %s, the first for %s",
		n, m.slot.Size, english.PluralWord(n, "is", "are"), in, what, Age(age))
	ended := slices.DeleteFunc(slices.Clone(m.present), func(p *participant) bool { return !p.ended() })
	switch n := len(ended); n {
	case 0:
	case 1:
		text.add("; the process of one of them has ended since")
	default:
		text.add("; the processes of %d of them have ended since", n)
	}
	return text
}

// difference describes a call by what differs from the usual one.
func difference(usual, sig *tape.Signature) string {
	if usual.Call != sig.Call {
		return sig.Call.String()
	}
	if *usual == *sig && !sig.Call.IsOperation() {
		return sig.Call.String()
	}
	if *usual == *sig {
		return fmt.Sprintf("%s of %s, %d bytes", sig.Call, kernels.DataType(sig.DataType), sig.Bytes)
	}
	parts := unlike(usual, sig)
	if usual.Bytes != sig.Bytes {
		parts = append(parts, fmt.Sprintf("%d bytes", sig.Bytes))
	}
	return strings.Join(parts, ", ")
}

// unlike names the arguments of a call, other than its size, that differ from another call's.
func unlike(usual, sig *tape.Signature) (parts []string) {
	if usual.DataType != sig.DataType {
		parts = append(parts, "data type "+kernels.DataType(sig.DataType).String())
	}
	if usual.Reduction != sig.Reduction {
		parts = append(parts, "reduction "+kernels.Reduction(sig.Reduction).String())
	}
	if usual.Peer != sig.Peer {
		parts = append(parts, fmt.Sprintf("root %d", sig.Peer))
	}
	return parts
}

// text says which call a rank made, and which call its program has always made there.
func (o *Odd) text(r string) Text {
	return say("%s called %s, where it had called %s %d times before", r, o.Did.text(&o.Instead.Op),
		o.Instead.text(&o.Did.Op), o.Instead.Times)
}

// text is a call, with the arguments in which it differs from another one.
func (u *Usual) text(other *tape.Signature) Text {
	what, on := u.Op.Call.String(), " on"
	switch u.Op.Call {
	case lifecycle.CallSend:
		what, on = what+fmt.Sprintf(" of %d bytes to rank %d", u.Op.Bytes, u.Op.Peer), " of"
	case lifecycle.CallRecv:
		what, on = what+fmt.Sprintf(" of %d bytes from rank %d", u.Op.Bytes, u.Op.Peer), " of"
	case lifecycle.CallBarrier:
	case lifecycle.CallGroupEnd:
		what = fmt.Sprintf("a group of messages of %d bytes", u.Op.Bytes)
	default:
		what += fmt.Sprintf(" of %d bytes", u.Op.Bytes)
	}
	if same := *other; same.Call == u.Op.Call {
		if !u.Op.Call.IsRooted() { // the text has the other rank of a message
			same.Peer = u.Op.Peer
		}
		if parts := unlike(&same, &u.Op); len(parts) > 0 {
			on = " with " + words.List(parts) + on
		}
	}
	return say("%s%s %s", what, on, quoted(u.Name, u.Comm))
}

// ranksText lists ranks as a person would: "rank 3", "ranks 0 to 2 and 5".
func ranksText(ranks []Rank) string {
	if len(ranks) == 0 {
		return "no rank"
	}
	var numbers []int
	for _, r := range ranks {
		if r.Job >= 0 {
			numbers = append(numbers, r.Job)
		}
	}
	var all []string
	if len(numbers) > 0 {
		all = append(all, words.Ranks(numbers))
	}
	for _, r := range ranks {
		if r.Job < 0 {
			all = append(all, r.String())
		}
	}
	return words.List(all)
}

// byRank orders ranks as people count them.
func byRank(a, b Rank) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Comm, b.Comm), cmp.Compare(a.Member, b.Member))
}
