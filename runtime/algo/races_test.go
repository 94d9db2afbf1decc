package algo_test

import (
	"fmt"

	"github.com/carillon-rt/carillon/runtime/algo"
)

// order is the order of a later and an earlier step that a plan's edges impose.
type order uint8

const (
	free   order = iota // none: they may run in any order
	stream              // element k of the later one comes after element k of the earlier one
	behind              // the later one starts when the earlier one has ended
)

// Races looks for two steps of rank r's plan that access the same memory, at least one of them writing, in an order
// that the plan does not determine. Its result holds for any timing, not only for one that was tried.
func Races(c Case, r int, p *algo.Plan) error {
	before := orders(p)
	for j := range p.Steps {
		for i := range j {
			a, b := &p.Steps[i], &p.Steps[j]
			if idle(c, r, a) || idle(c, r, b) {
				continue
			}
			for _, w := range Writes(b) {
				for _, t := range append(Reads(a), Writes(a)...) {
					if clash(c, r, t, w, before[j][i]) {
						return fmt.Errorf("rank %d: step %d (%v) may write to %v before step %d (%v) is done with it",
							r, j, b, w, i, a)
					}
				}
			}
			for _, t := range Reads(b) {
				for _, w := range Writes(a) {
					if clash(c, r, w, t, before[j][i]) {
						return fmt.Errorf("rank %d: step %d (%v) may read %v before step %d (%v) has written it",
							r, j, b, t, i, a)
					}
				}
			}
		}
	}
	return nil
}

// idle reports whether a step copies memory onto itself, which changes nothing: engines skip it.
func idle(c Case, r int, s *algo.Step) bool {
	if s.Kind != algo.StepCopy || s.Src.Buf == algo.Posted {
		return false
	}
	inSrc, inDst, overlap := intersect(c, r, s.Src, s.Dst)
	return overlap && inSrc == inDst
}

// orders computes the order of every pair of steps from the plan's edges: the strongest order on any path between them.
func orders(p *algo.Plan) [][]order {
	before := make([][]order, len(p.Steps))
	lastSend, lastRecv := map[int]int{}, map[int]int{}
	for j := range p.Steps {
		s := &p.Steps[j]
		before[j] = make([]order, j)
		edge := func(i int, o order) {
			before[j][i] = max(before[j][i], o)
			for h, further := range before[i] {
				if further != free {
					before[j][h] = max(before[j][h], weaker(further, o))
				}
			}
		}
		if s.After != algo.None {
			edge(s.After, stream)
		}
		for i := s.Wait.From; i < s.Wait.To; i++ {
			edge(i, behind)
		}
		// Messages of one connection and direction are ordered.
		last := lastSend
		if s.Kind != algo.StepSend {
			last = lastRecv
		}
		if hasPeer(s) {
			if i, ok := last[s.Peer]; ok {
				edge(i, behind)
			}
			last[s.Peer] = j
		}
	}
	return before
}

// weaker returns the order of two consecutive edges: if one of them is a barrier, the whole path is.
func weaker(a, b order) order {
	if a == behind || b == behind {
		return behind
	}
	return stream
}

// clash reports whether a later step may access a span that overlaps an earlier step's span too early.
func clash(c Case, r int, earlier, later algo.Span, o order) bool {
	from, to, overlap := intersect(c, r, earlier, later)
	if !overlap || o == behind {
		return false
	}
	if o == free {
		return true
	}
	// The same memory is element from of the earlier step and element to of the later one.
	return from > to
}

// intersect reports whether two spans share memory, and returns each span's element at the first shared position.
func intersect(c Case, r int, a, b algo.Span) (inA, inB int, overlap bool) {
	offA, offB := a.Off, b.Off
	if a.Buf != b.Buf {
		if a.Buf == algo.Tmp || b.Buf == algo.Tmp || !shares(c, r) {
			return 0, 0, false
		}
		_, _, in, out := layout(c, r)
		place := map[algo.Buffer]int{algo.In: in, algo.Out: out}
		offA, offB = offA+place[a.Buf], offB+place[b.Buf]
	}
	first := max(offA, offB)
	return first - offA, first - offB, first < min(offA+a.Len, offB+b.Len)
}
