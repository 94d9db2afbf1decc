package verdict

import (
	"fmt"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
)

// failures are the verdicts on what the runtime found itself: an engine that catches a mismatch, or hears of a death,
// fails the communicator instead of letting it hang.
func (w *walk) failures() []Verdict {
	type cause struct {
		comm lifecycle.CommID
		code lifecycle.Code
		peer int
	}
	var order []cause
	found := map[cause][]*place{}
	for _, a := range w.g.actors {
		for _, s := range a.slots {
			f := s.Failure
			if f == nil || f.Peer < 0 || a.note.Fate != Alive {
				continue
			}
			switch f.Code {
			case lifecycle.CodeMismatch, lifecycle.CodeRankDead, lifecycle.CodeUnreachable:
			default:
				continue
			}
			key := cause{s.Comm, f.Code, f.Peer}
			if found[key] == nil {
				order = append(order, key)
			}
			found[key] = append(found[key], &place{a, s})
		}
	}
	var verdicts []Verdict
	for _, key := range order {
		if key.code == lifecycle.CodeMismatch {
			// Those who differ see the others as different. Whom most accuse is the one.
			rivals := slices.DeleteFunc(slices.Clone(order), func(o cause) bool {
				return o.comm != key.comm || o.code != key.code || len(found[o]) < len(found[key])
			})
			if slices.ContainsFunc(rivals, func(o cause) bool { return len(found[o]) > len(found[key]) }) {
				continue
			}
			if len(rivals) > 1 {
				if rivals[0] == key {
					var told []*place
					for _, o := range rivals {
						told = append(told, found[o]...)
					}
					verdicts = append(verdicts, undecided(told))
				}
				continue
			}
		}
		if v, ok := w.failure(key.comm, key.code, key.peer, found[key]); ok {
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}

// undecided is the verdict on a mismatch of which as many ranks accuse one as another: it is nobody's fault, and one cause.
func undecided(told []*place) Verdict {
	slot := told[0].slot
	v := Verdict{
		Reason: Mismatch, Confidence: Certain, Comm: slot.Comm, Name: slot.Name, Call: slot.Failure.Call.String(), Seq: slot.Failure.Seq,
		Age: Age(slot.Failure.Age), Victims: failed(told),
		Text: fmt.Sprintf("the ranks made different calls as number %d on %s, and none of them is in the minority", slot.Failure.Seq, commText(slot)),
	}
	for _, t := range told[:min(len(told), maxEvidence)] {
		v.Evidence = append(v.Evidence, fmt.Sprintf("%s was told: %s", rankOf(t.actor, slot.Comm), t.slot.Failure.Text))
	}
	return v
}

// failure is the verdict on a rank whom others' communicators failed because of; false if it has one already.
func (w *walk) failure(comm lifecycle.CommID, code lifecycle.Code, peer int, told []*place) (Verdict, bool) {
	slot := told[0].slot
	v := Verdict{
		Confidence: Certain, Comm: comm, Name: slot.Name, Call: slot.Failure.Call.String(), Seq: slot.Failure.Seq, Age: Age(slot.Failure.Age),
	}
	culprit := Rank{Job: -1, Comm: peer}
	p := w.g.seats[seat{comm, peer}]
	if p != nil {
		culprit = rankOf(p.actor, comm)
	}
	switch code {
	case lifecycle.CodeMismatch:
		v.Reason = Mismatch
	case lifecycle.CodeRankDead:
		v.Reason = RankDead
	default:
		v.Reason, v.Confidence = RankUnreachable, Likely
	}
	if v.Reason != Mismatch {
		known := p != nil && p.actor.note.Fate != Alive || p == nil && len(w.g.lost) > 0
		if known { // the process's fate says it, and better
			return v, false
		}
		if p != nil && v.Reason == RankUnreachable { // it answers: the connection broke, and not the rank
			v.Reason = Transport
		}
	}
	v.Culprits = []Rank{culprit}
	v.Victims = failed(told)
	v.Text = fmt.Sprintf("%s: %s failed on %s", culprit, commText(slot), ranksText(ranksOf(v.Victims)))
	if slot.Failure.Text != "" {
		v.Text = slot.Failure.Text
	}
	return v, true
}

// failed are those whose communicator failed, as victims.
func failed(told []*place) []Wait {
	waits := make([]Wait, 0, len(told))
	for _, t := range told {
		f := t.slot.Failure
		waits = append(waits, Wait{
			Rank: rankOf(t.actor, t.slot.Comm), Comm: t.slot.Comm, Name: t.slot.Name, Call: f.Call.String(), Seq: f.Seq, Age: Age(f.Age),
		})
	}
	slices.SortFunc(waits, longest)
	return waits
}

func ranksOf(waits []Wait) []Rank {
	ranks := make([]Rank, 0, len(waits))
	for _, w := range waits {
		ranks = append(ranks, w.Rank)
	}
	return ranks
}
