package verdict

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-rt/carillon/lifecycle/words"
)

// contradiction is the verdict on ranks that gave a different size for a meeting's communicator than most ranks, or
// that claimed the same rank in it; false if there are none.
func (w *walk) contradiction(m *meeting) (Verdict, bool) {
	c := w.claimsOf(m)
	if len(c.bySize) > 1 {
		return m.otherSizes(c.bySize, c.most, c.n), true
	}
	if rank := c.taken(); rank >= 0 {
		return m.sameRank(c.byRank[rank], c.byRank), true
	}
	return Verdict{}, false
}

// claims has the ranks and sizes that n actors gave for a meeting's communicator; most is the most frequent size.
type claims struct {
	bySize, byRank map[int][]*actor
	n, most        int
}

// claimsOf collects the claims of the known ranks. An init that failed before the others began may be of another run.
func (g *graph) claimsOf(m *meeting) claims {
	c := claims{bySize: map[int][]*actor{}, byRank: map[int][]*actor{}}
	for _, a := range g.actors {
		s := a.slotIn(m.key.comm)
		if s == nil || s.Rank < 0 || m.key.kind == joining && s.Left != nil && s.Left.Age > m.age+skew {
			continue
		}
		c.n++
		c.bySize[s.Size] = append(c.bySize[s.Size], a)
		c.byRank[s.Rank] = append(c.byRank[s.Rank], a)
		if len(c.bySize[s.Size]) > len(c.bySize[c.most]) {
			c.most = s.Size
		}
	}
	return c
}

// taken is the lowest rank that several actors claimed; -1 if there is none.
func (c *claims) taken() int {
	for _, rank := range slices.Sorted(maps.Keys(c.byRank)) {
		if len(c.byRank[rank]) > 1 {
			return rank
		}
	}
	return -1
}

func (c claims) contradict() bool { return len(c.bySize) > 1 || c.taken() >= 0 }

// ambiguous reports whether another culprit has the same rank as the given one.
func (v *Verdict) ambiguous(rank Rank) bool {
	return slices.ContainsFunc(v.Culprits, func(r Rank) bool { return r.Job == rank.Job && r.Member != rank.Member })
}

// processesText names the processes of ranks.
func processesText(ranks []Rank) string {
	all := make([]string, 0, len(ranks))
	for _, r := range ranks {
		all = append(all, r.Process())
	}
	return "processes " + words.List(all)
}

// otherSizes is the verdict on ranks that gave a different size than the majority of the n ranks.
func (m *meeting) otherSizes(by map[int][]*actor, most, n int) Verdict {
	if 2*len(by[most]) <= n {
		v := m.verdict(Mismatch, Likely, nil, nil)
		var gave []string
		for _, size := range slices.Sorted(maps.Keys(by)) {
			gave = append(gave, fmt.Sprintf("%s: %d", ranksText(m.ranksOf(by[size])), size))
		}
		v.Text = say("the ranks gave different sizes of %s, and it is not known which is wrong: %s", commText(m.slot),
			strings.Join(gave, "; "))
		v.addFailed(m, nil)
		return v
	}
	wrong := maps.Clone(by)
	delete(wrong, most)
	culprits := slices.Concat(slices.Collect(maps.Values(wrong))...)
	v := m.verdict(Mismatch, Certain, m.ranksOf(culprits), nil)
	v.Text = say("%s gave %s as the size of %s, and the others %d", culpritsText(v.Culprits), sizes(wrong),
		commText(m.slot), most)
	v.addFailed(m, culprits)
	return v
}

func sizes(by map[int][]*actor) string {
	var all []string
	for _, size := range slices.Sorted(maps.Keys(by)) {
		all = append(all, strconv.Itoa(size))
	}
	return words.List(all)
}

// sameRank is the verdict on ranks that claimed the same rank. It blames those that have another number in the job, if
// exactly one has this number and each other rank has the same number in both; otherwise it blames all of them.
func (m *meeting) sameRank(some []*actor, byRank map[int][]*actor) Verdict {
	rank := some[0].slotIn(m.key.comm).Rank
	renumbered := func(a *actor) bool { return a.job != a.slotIn(m.key.comm).Rank }
	wrong := slices.DeleteFunc(slices.Clone(some), func(a *actor) bool { return !renumbered(a) })
	for _, others := range byRank {
		if others[0].slotIn(m.key.comm).Rank != rank && slices.ContainsFunc(others, renumbered) {
			wrong = some
		}
	}
	if len(wrong) != len(some)-1 {
		v := m.verdict(Mismatch, Likely, m.ranksOf(some), nil)
		who := culpritsText(v.Culprits)
		if v.ambiguous(v.Culprits[0]) {
			who = processesText(v.Culprits)
		}
		v.Text = say("%s took one rank of %s, number %d", who, commText(m.slot), rank)
		v.addFailed(m, some)
		return v
	}
	v := m.verdict(Mismatch, Likely, m.ranksOf(wrong), nil)
	i := slices.IndexFunc(some, func(a *actor) bool { return !renumbered(a) })
	v.Text = say("%s took rank %d of %s, which %s has", culpritsText(v.Culprits), rank, commText(m.slot),
		culpritsText(m.ranksOf(some[i:i+1])))
	v.addFailed(m, wrong)
	return v
}
