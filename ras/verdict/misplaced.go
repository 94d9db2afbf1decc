package verdict

import (
	"cmp"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
)

// The ranks of a training job are split into groups of one size and one pattern: neighbours, or every n-th rank. A rank
// that passes another color than its place requires is in another group, or in none. Nothing is wrong with the split
// itself, but whatever its groups do goes wrong, on any rank and in any way.

// division is the groups that a split made.
type division struct {
	parent *Slot
	number uint64
	groups []*group
}

// group is a communicator that a split made.
type group struct {
	slot  *Slot
	ranks []int // of the parent, in order
}

// misplaced is a rank that a split put into another group than the pattern of the others requires.
type misplaced struct {
	rank   *participant // of the parent
	is, in *group       // its group, nil for none, and the group where it belongs
	or     *participant // the rank of in, if each is alone in its group, and either may be the misplaced one
}

// divisions are the splits of which groups are known.
func (g *graph) divisions() (all []*division) {
	for _, a := range g.actors {
		for _, s := range a.slots {
			parent := a.slotIn(s.Parent)
			if s.Made == 0 || parent == nil {
				continue
			}
			i := slices.IndexFunc(all, func(d *division) bool {
				return d.parent.Comm == s.Parent && d.number == s.Made
			})
			if i < 0 {
				i = len(all)
				all = append(all, &division{parent: parent, number: s.Made})
			}
			d := all[i]
			k := slices.IndexFunc(d.groups, func(o *group) bool { return o.slot.Comm == s.Comm })
			if k < 0 {
				k = len(d.groups)
				d.groups = append(d.groups, &group{slot: s})
			}
			d.groups[k].ranks = append(d.groups[k].ranks, parent.Rank)
		}
	}
	return all
}

// misplaced finds a rank that a split misplaced, if the groups of that split have hardly been used.
func (g *graph) misplaced() *misplaced {
	for _, d := range g.divisions() {
		members := slices.Collect(g.members(d.parent))
		complete := len(members) == d.parent.Size &&
			!slices.ContainsFunc(members, func(p *participant) bool { return p.slot.Splits < d.number })
		for _, o := range d.groups {
			slices.Sort(o.ranks)
			complete = complete && len(o.ranks) == o.slot.Size
		}
		if !complete {
			continue
		}
		if m := d.misplaced(members); m != nil && !g.used(m) {
			return m
		}
	}
	return nil
}

// misplaced returns the only rank whose move to one of the groups gives all groups the size and the pattern that at
// least two of them have, or the only two ranks of which one must be moved to the other; nil if there is none, or there
// are more candidates.
func (d *division) misplaced(members []*participant) *misplaced {
	groupOf := map[int]*group{}
	sizes := map[int]int{} // how many groups have each
	for _, o := range d.groups {
		sizes[len(o.ranks)]++
		for _, r := range o.ranks {
			groupOf[r] = o
		}
	}
	var found []*misplaced
	for _, in := range d.groups {
		if sizes[len(in.ranks)+1] < 2 {
			continue // one group alone is no pattern: four trainers and two actors may be what the program wants
		}
		for _, p := range members {
			is := groupOf[p.slot.Rank]
			others := len(groupOf) // other ranks that are in a group
			if is != nil {
				others--
			}
			if others == len(members)-1 && is != in && d.patterned(p.slot.Rank, is, in) {
				found = append(found, &misplaced{rank: p, is: is, in: in})
			}
		}
	}
	switch {
	case len(found) == 2 && found[0].is == found[1].in && found[1].is == found[0].in:
		found[1].or = found[0].rank // that of the later group
		return found[1]
	case len(found) == 1:
		return found[0]
	default:
		return nil
	}
}

// patterned reports whether all groups would have one size, and one distance between neighbours, if a rank were moved
// from one group to another. The move may leave its own group empty.
func (d *division) patterned(rank int, from, to *group) bool {
	size, distance := len(to.ranks)+1, 0
	for _, o := range d.groups {
		ranks := o.ranks
		switch o {
		case from:
			ranks = slices.DeleteFunc(slices.Clone(ranks), func(r int) bool { return r == rank })
		case to:
			ranks = slices.Sorted(slices.Values(append(slices.Clone(ranks), rank)))
		}
		if len(ranks) != size && (o != from || len(ranks) > 0) {
			return false
		}
		for i := 1; i < len(ranks); i++ {
			if distance = cmp.Or(distance, ranks[i]-ranks[i-1]); ranks[i]-ranks[i-1] != distance {
				return false
			}
		}
	}
	return true
}

// fewCalls is the most calls that a rank can have made on a communicator that may still prove to be the wrong one.
const fewCalls = 64

// used tells whether the groups between which a rank was misplaced have been in use for long.
func (g *graph) used(m *misplaced) bool {
	for _, o := range []*group{m.is, m.in} {
		if o == nil {
			continue
		}
		for p := range g.members(o.slot) {
			calls := p.slot.Begun + p.slot.Groups
			for _, n := range p.slot.Messages {
				calls += n.Sent + n.Received
			}
			if calls > fewCalls {
				return true
			}
		}
	}
	return false
}

// wrongColor is the verdict on a rank that a split misplaced, or on two ranks of which it misplaced one. The verdicts
// on other ranks become its consequences.
func (g *graph) wrongColor(m *misplaced, consequences []Verdict) Verdict {
	parent := m.rank.slot
	v := Verdict{
		Reason: Mismatch, Confidence: Likely, Culprits: []Rank{rankOf(m.rank.actor, parent.Comm)},
		Comm: parent.Comm, Name: parent.Name, Call: lifecycle.CallSplit.String(), Seq: m.in.slot.Made,
	}
	is := "in no group"
	if m.is != nil {
		is = "in " + commText(m.is.slot)
	}
	var others []Rank
	for _, rank := range m.in.ranks {
		others = append(others, g.rankAt(parent, rank))
	}
	who := culpritsText(v.Culprits)
	how := say("it is %s, and would make up %s with %s by the pattern of the other groups", is, commText(m.in.slot),
		ranksText(others))
	if m.or != nil {
		v.Culprits = append(v.Culprits, rankOf(m.or.actor, parent.Comm))
		who += " or " + culpritsText(v.Culprits[1:])
		how = say("each is alone, %s and in %s, and by the pattern of the other groups they would be in one", is,
			commText(m.in.slot))
	}
	v.Text = say("%s seems to have passed a wrong color to a split of %s: %s", who, commText(parent), how)
	for i := range consequences {
		o := &consequences[i]
		v.Age = max(v.Age, o.Age)
		if len(v.Evidence) < maxEvidence {
			v.Evidence = append(v.Evidence, say("a consequence: %s", o.Text))
		}
		for _, w := range o.Victims {
			known := slices.ContainsFunc(v.Victims, func(k Wait) bool { return k.Rank.Same(w.Rank) })
			if !known && !slices.ContainsFunc(v.Culprits, w.Rank.Same) {
				v.Victims = append(v.Victims, w)
			}
		}
	}
	slices.SortFunc(v.Victims, longest)
	v.Text.add("%s", waiting(v.Victims))
	v.setID()
	return v
}
