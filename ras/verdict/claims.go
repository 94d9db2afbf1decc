package verdict

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-rt/carillon/lifecycle/words"
)

// contradiction is the verdict on ranks that gave another size of a meeting's communicator than most, or that took one
// rank of it; false if there are none.
func (w *walk) contradiction(m *meeting) (Verdict, bool) {
	bySize, byRank := map[int][]*actor{}, map[int][]*actor{}
	n, most := 0, 0
	for _, a := range w.actors {
		if s := a.slotIn(m.key.comm); s != nil && s.Rank >= 0 {
			n++
			bySize[s.Size] = append(bySize[s.Size], a)
			byRank[s.Rank] = append(byRank[s.Rank], a)
			if len(bySize[s.Size]) > len(bySize[most]) {
				most = s.Size
			}
		}
	}
	if len(bySize) > 1 {
		return m.otherSizes(bySize, most, n), true
	}
	for _, rank := range slices.Sorted(maps.Keys(byRank)) {
		if len(byRank[rank]) > 1 {
			return m.sameRank(byRank[rank], byRank), true
		}
	}
	return Verdict{}, false
}

// otherSizes is the verdict on ranks that gave another size than most of n did.
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

// sameRank is the verdict on ranks that took one rank: on those of them that have another number in the job, if all
// other ranks have the same number there, else on all of them.
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
		v.Text = say("%s took one rank of %s, number %d", culpritsText(v.Culprits), commText(m.slot), rank)
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
