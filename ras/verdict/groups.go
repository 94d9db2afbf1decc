package verdict

import (
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// openGroup is a group job that the actor has had open for about as long as the meeting waits, or else a group with
// calls on the meeting's communicator that its program has not ended; nil if there is none.
func (a *actor) openGroup(m *meeting) *OpenAct {
	for _, s := range a.slots {
		if group := s.groupJob(); group != nil && group.Age >= m.age/2 && s.InFlight == 0 {
			return group
		}
	}
	return a.unended(m)
}

// unended is a group with calls on the meeting's communicator that the actor's program has not ended; nil if there is
// none. It has been open for about as long as the meeting waits or, if the rank is in a call on the communicator, since
// before that call, which is outside of the group.
func (a *actor) unended(m *meeting) *OpenAct {
	s, least := a.slotIn(m.key.comm), m.until+(m.age-m.until)/2
	if s == nil {
		return nil
	}
	for _, p := range a.in {
		if p.slot == s {
			least = p.since
		}
	}
	i := slices.IndexFunc(s.Acts, func(o OpenAct) bool { return o.Unended && o.Age >= least })
	if i < 0 {
		return nil
	}
	return &s.Acts[i]
}

// open tells whether the call that a leaf's meeting waits for is in a group that its program has not ended.
func (l *leaf) open() bool { return l.actor.unended(l.at) != nil }

// ungrouped finds the ranks of a knot that went on although they have not ended the group with the call that the others
// wait for. It returns false if there are none.
func (w *walk) ungrouped(knot []*meeting) (found bool) {
	for _, m := range knot {
		for _, e := range m.edges {
			if slices.Contains(knot, e.to) && e.via.unended(m) != nil {
				w.add(&leaf{actor: e.via, at: m, in: e.in()})
				found = true
			}
		}
	}
	return found
}

// unfinishedGroups are the verdicts on acts that wait for an unfinished group job of their own rank.
func (g *graph) unfinishedGroups() []Verdict {
	var verdicts []Verdict
	for _, a := range g.actors {
		for _, s := range a.slots {
			group := s.groupJob()
			i := slices.IndexFunc(s.Acts, func(o OpenAct) bool {
				return o.Stalled && o.Act != tape.ActGroup && o.Act != tape.ActInit &&
					(group == nil || o.Age <= group.Age)
			})
			if group == nil || i < 0 || s.InFlight > 0 || a.note.Fate != Alive {
				continue
			}
			act := s.Acts[i]
			r := rankOf(a, s.Comm)
			v := Verdict{
				Reason: UnfinishedGroup, Confidence: Certain, Culprits: []Rank{r}, Comm: s.Comm, Name: s.Name,
				Call: act.Act.String(), Seq: act.Seq, Age: Age(group.Age),
				Victims: []Wait{{Rank: r, Comm: s.Comm, Name: s.Name, Call: act.Act.String(), Age: Age(act.Age)}},
				Text: say("%s of %s on %s waits for a group job that has been open for %s: %s",
					act.Act.String(), commText(s), culpritsText([]Rank{r}), Age(group.Age), completeGroup),
			}
			v.setID()
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}

// blameGroups makes a verdict on a mismatch one on groups that culprits have not ended, if there are any: the calls
// that the culprits should have made on the communicator are in these groups.
func (v *Verdict) blameGroups(m *meeting, culprits []*actor) bool {
	i := slices.IndexFunc(culprits, func(a *actor) bool { return a.unended(m) != nil })
	if i < 0 {
		return false
	}
	group := culprits[i].unended(m)
	v.Reason, v.Confidence, v.Age = UnfinishedGroup, Certain, Age(group.Age)
	v.Evidence = append([]Text{v.Text}, v.Evidence...)
	v.Text = openGroupText(v.Culprits, group)
	v.Text.add(", and %s %s made other calls on %s", they(v.Culprits), haveText(v.Culprits), commText(m.slot))
	v.setID()
	return true
}

// openGroupText says that ranks have not ended their groups, of which one is given.
func openGroupText(ranks []Rank, group *OpenAct) Text {
	their := "their"
	if len(ranks) == 1 {
		their = "its"
	}
	return say("%s %s a group that has been open for %s%s: call GroupEnd; until then %s calls are not made",
		culpritsText(ranks), haveText(ranks), Age(group.Age), startedAt(group), their)
}

// leftOpen is the verdict on ranks whose programs have not ended a group for long, if no rank is known to wait for the
// calls in it; none if there are no such ranks.
func (g *graph) leftOpen() []Verdict {
	v := Verdict{Reason: UnfinishedGroup, Confidence: Possible}
	var only *OpenAct
	for _, a := range g.actors {
		var longest *OpenAct
		for _, s := range a.slots {
			for i := range s.Acts {
				if o := &s.Acts[i]; s.Left == nil && o.Unended && o.Stalled && (longest == nil || o.Age > longest.Age) {
					longest = o
				}
			}
		}
		if longest == nil || a.note.Fate != Alive {
			continue
		}
		only = longest
		r := rankOf(a, lifecycle.CommID{})
		v.Culprits, v.Age = append(v.Culprits, r), max(v.Age, Age(longest.Age))
		v.Evidence = append(v.Evidence, say("%s opened its group %s ago%s", r, Age(longest.Age), startedAt(longest)))
	}
	if len(v.Culprits) == 0 {
		return nil
	}
	where := ""
	if len(v.Culprits) == 1 {
		where, v.Evidence = startedAt(only), nil
	}
	v.Text = say("%s %s a group that has been open for %s%s: call GroupEnd; until then the calls in it are not made",
		culpritsText(v.Culprits), haveText(v.Culprits), v.Age, where)
	v.Evidence = v.Evidence[:min(len(v.Evidence), maxEvidence)]
	v.setID()
	return []Verdict{v}
}

// startedAt is where a group was started, in parentheses; empty if that isn't known.
func startedAt(group *OpenAct) string {
	if group.Site == "" {
		return ""
	}
	return " (started at " + group.Site + ")"
}
