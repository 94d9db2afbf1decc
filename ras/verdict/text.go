package verdict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// at says where a verdict shows.
func (v *Verdict) at(m *meeting) {
	v.Comm, v.Name, v.Call, v.Seq, v.Age = m.key.comm, m.slot.Name, m.call(m.slot), m.key.seq, Age(m.age)
}

// locate says where a verdict shows by who has waited longest.
func (v *Verdict) locate() {
	if len(v.Victims) > 0 {
		first := v.Victims[0]
		v.Comm, v.Name, v.Call, v.Seq = first.Comm, first.Name, first.Call, first.Seq
	}
}

// call is the name of the call that a meeting is.
func (m *meeting) call(s *Slot) string {
	if m.key.kind == joining {
		return tape.ActInit.String()
	}
	return s.Op.Call.String()
}

// text is a meeting as a sentence has it: `all_reduce 41 on "world"`.
func (m *meeting) text() string {
	switch m.key.kind {
	case joining:
		return "the init of " + commText(m.slot)
	case message:
		return fmt.Sprintf("message %d from rank %d to rank %d on %s", m.key.seq, m.key.from, m.key.to, commText(m.slot))
	case exchange:
		return "the exchange of messages on " + commText(m.slot)
	default:
		return callText(m.slot.Op.Call.String(), m.key.seq, m.slot)
	}
}

// entered is what a rank has not done that isn't in the meeting, as the end of "has not …".
func (m *meeting) entered(r Rank) string {
	if m.key.kind != message {
		return "entered " + m.text()
	}
	other := rankOf(m.present[0].actor, m.key.comm)
	if r.Comm == m.key.from {
		return fmt.Sprintf("sent message %d to %s on %s", m.key.seq, other, commText(m.slot))
	}
	return fmt.Sprintf("called for message %d of %s on %s", m.key.seq, other, commText(m.slot))
}

// absentText names the ranks of a communicator of which nothing is known.
func absentText(m *meeting) string {
	rank := "ranks"
	if len(m.absent) == 1 {
		rank = "rank"
	}
	return fmt.Sprintf("%s %s of %s", rank, words.Numbers(m.absent), commText(m.slot))
}

func callText(call string, seq uint64, s *Slot) string {
	return fmt.Sprintf("%s %d on %s", call, seq, commText(s))
}

// commText is a communicator as a sentence has it: `"world"`, or its id if it has no name.
func commText(s *Slot) string {
	if s.Name == "" {
		return s.Comm.Short()
	}
	return strconv.Quote(s.Name)
}

// rankName is the rank of a process that can't speak.
func rankName(n *Note, s *Slot) string {
	if n.Rank >= 0 && !manyRanks(n) {
		return "rank " + strconv.Itoa(n.Rank)
	}
	return "rank " + strconv.Itoa(s.Rank) + " of " + commText(s)
}

// waiting is the end of a sentence that says who waits.
func waiting(victims []Wait) string {
	ranks := ranksOf(victims)
	slices.SortFunc(ranks, byRank)
	ranks = slices.CompactFunc(ranks, func(a, b Rank) bool { return a.Job == b.Job && a.Member == b.Member && a.Comm == b.Comm })
	switch {
	case len(ranks) == 0:
		return ""
	case len(ranks) == 1:
		return fmt.Sprintf("; %s waits", ranks[0])
	case slices.ContainsFunc(ranks, func(r Rank) bool { return r.Job < 0 }):
		return fmt.Sprintf("; %d ranks wait", len(ranks))
	default:
		jobs := make([]int, len(ranks))
		for i, r := range ranks {
			jobs[i] = r.Job
		}
		slices.Sort(jobs)
		if jobs = slices.Compact(jobs); len(jobs) == 1 {
			return fmt.Sprintf("; rank %d waits", jobs[0])
		}
		return fmt.Sprintf("; ranks %s wait", words.Numbers(jobs))
	}
}

// lastCall is what an actor did last, as the end of a sentence.
func lastCall(a *actor) string {
	var last *Slot
	for _, s := range a.slots {
		if s.Op.Call != lifecycle.CallNone && (last == nil || s.Age < last.Age) {
			last = s
		}
	}
	if last == nil {
		return ", nor any before it"
	}
	return fmt.Sprintf("; its last, %s, ended %s earlier", callText(last.Op.Call.String(), last.Seq, last), Age(last.Age))
}

// attendance tells how many are in a meeting.
func attendance(m *meeting) []string {
	return []string{fmt.Sprintf("%d of %d ranks are in %s, the first for %s", len(m.present), m.slot.Size, m.text(), Age(m.age))}
}

// difference is a call, told by what sets it apart from another.
func difference(usual, sig *tape.Signature) string {
	if usual.Call != sig.Call {
		return sig.Call.String()
	}
	if *usual == *sig {
		return fmt.Sprintf("%s of %s, %d bytes", sig.Call, kernels.DataType(sig.DataType), sig.Bytes)
	}
	var parts []string
	if usual.DataType != sig.DataType {
		parts = append(parts, "data type "+kernels.DataType(sig.DataType).String())
	}
	if usual.Reduction != sig.Reduction {
		parts = append(parts, "reduction "+kernels.Reduction(sig.Reduction).String())
	}
	if usual.Peer != sig.Peer {
		parts = append(parts, fmt.Sprintf("root %d", sig.Peer))
	}
	if usual.Bytes != sig.Bytes {
		parts = append(parts, fmt.Sprintf("%d bytes", sig.Bytes))
	}
	return strings.Join(parts, ", ")
}
