package verdict

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-rt/carillon/lifecycle"
)

// cycles are the verdicts on ranks that wait for themselves.
func (w *walk) cycles() []Verdict {
	var verdicts []Verdict
	for _, knot := range w.knots {
		verdicts = append(verdicts, w.cycle(knot))
	}
	return verdicts
}

func (w *walk) cycle(knot []*node) Verdict {
	ring := fromLowest(shortest(knot))
	v := Verdict{Reason: Deadlock, Confidence: Certain}
	culprits := map[*actor]bool{}
	var steps []string
	exchanges := true
	first := ring[0].meeting
	for i := 0; i < len(ring); i += 2 { // meeting, actor, meeting, actor …: each actor is in the meeting that follows
		m, a := ring[(i+2)%len(ring)].meeting, ring[i+1].actor
		culprits[a] = true
		r := rankOf(a, m.key.comm)
		v.Culprits = append(v.Culprits, r)
		exchanges = exchanges && m.key.kind == exchange
		if m.age > first.age {
			first = m
		}
		steps = append(steps, fmt.Sprintf("%s is in %s, which needs %s", r, m.text(), rankOf(ring[(i+3)%len(ring)].actor, m.key.comm)))
	}
	v.Victims = w.waitsFor(knot, func(a *actor) bool { return culprits[a] })
	v.at(first)
	v.Evidence = steps
	switch {
	case exchanges && len(v.Culprits) == 2:
		v.Reason = Transport
		v.Text = fmt.Sprintf("%s and %s exchange messages, and nothing has come either way for %s, by %s",
			v.Culprits[0], v.Culprits[1], Age(first.age), path(v.Culprits[0], v.Culprits[1]))
	default:
		v.Text = "a cycle: " + strings.Join(steps, "; ")
	}
	for _, n := range knot {
		if n.meeting != nil && n.meeting.guessed {
			v.Confidence = Likely
		}
	}
	return v
}

// fromLowest lets a cycle begin with its lowest rank.
func fromLowest(ring []*node) []*node {
	at := 0
	for i := 1; i < len(ring); i += 2 {
		best := rankOf(ring[at+1].actor, lifecycle.CommID{})
		if byRank(rankOf(ring[i].actor, lifecycle.CommID{}), best) < 0 {
			at = i - 1
		}
	}
	return append(slices.Clone(ring[at:]), ring[:at]...)
}

// shortest is the shortest cycle in a knot, as meeting, actor, meeting, actor …: each waits for the next, the last for
// the first.
func shortest(knot []*node) []*node {
	inside := map[*node]bool{}
	for _, n := range knot {
		inside[n] = true
	}
	var best []*node
	tries := 0
	for _, start := range knot {
		if start.meeting == nil {
			continue
		}
		if tries++; tries > 64 { // of a knot of thousands any short cycle will do
			break
		}
		from := map[*node]*node{}
		queue := []*node{start}
		var last *node
		for len(queue) > 0 && last == nil {
			n := queue[0]
			queue = queue[1:]
			for _, to := range n.out {
				if to == start {
					last = n
					break
				}
				if inside[to] && from[to] == nil {
					from[to] = n
					queue = append(queue, to)
				}
			}
		}
		var ring []*node
		for n := last; n != nil; n = from[n] {
			ring = append(ring, n)
		}
		slices.Reverse(ring)
		if len(ring) > 0 && (best == nil || len(ring) < len(best)) {
			best = ring
		}
	}
	return best
}
