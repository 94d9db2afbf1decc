package verdict

import (
	"cmp"
	"slices"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Diagnose says what holds the job up: a verdict for each cause, that which most wait for longest first, none if all is
// well. It needs a note of each process of the job, or of as many as can be had: what is missing is in the verdicts. It
// keeps nothing of notes and changes nothing in them; the same notes, in whatever order, give the same verdicts.
func Diagnose(notes []Note) []Verdict {
	notes = slices.Clone(notes)
	slices.SortFunc(notes, func(a, b Note) int { return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Member, b.Member)) })
	g := newGraph(notes)
	w := newWalk(g)
	w.run()

	var all []Verdict
	all = append(all, w.fates()...)
	all = append(all, w.failures()...)
	all = append(all, w.roots()...)
	all = append(all, w.cycles()...)
	all = append(all, g.unfinished()...)
	if len(all) == 0 {
		all = g.stragglers()
	}
	slices.SortStableFunc(all, func(a, b Verdict) int {
		return cmp.Or(cmp.Compare(waited(&b), waited(&a)), cmp.Compare(len(b.Victims), len(a.Victims)), cmp.Compare(a.ID(), b.ID()))
	})
	return unique(all)
}

// waited is for how long somebody has waited because of a verdict.
func waited(v *Verdict) Age {
	if len(v.Victims) == 0 {
		return 0
	}
	return v.Victims[0].Age
}

// unique leaves out what is said already.
func unique(all []Verdict) []Verdict {
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(v Verdict) bool {
		id := v.ID()
		again := seen[id]
		seen[id] = true
		return again
	})
}

// node is an actor or a meeting in the walk.
type node struct {
	actor   *actor
	meeting *meeting

	out, in []*node
	astray  bool // an actor that makes other calls for ever, and never the one that is waited for

	index, low int // of Tarjan's algorithm; index 0: not seen
	onStack    bool
}

// walk follows the graph from everything that is stalled to where it ends.
type walk struct {
	g        *graph
	actors   map[*actor]*node
	meetings map[*meeting]*node
	seen     []*node // in the order in which they were found
	stack    []*node
	knots    [][]*node // strongly connected, more than one: who waits for itself
}

func newWalk(g *graph) *walk {
	return &walk{g: g, actors: map[*actor]*node{}, meetings: map[*meeting]*node{}}
}

func (w *walk) run() {
	for _, m := range w.g.order {
		if m.stalled {
			if n := w.meeting(m); n.index == 0 {
				w.connect(n)
			}
		}
	}
}

func (w *walk) meeting(m *meeting) *node {
	n := w.meetings[m]
	if n == nil {
		n = &node{meeting: m}
		w.meetings[m] = n
	}
	return n
}

func (w *walk) actor(a *actor) *node {
	n := w.actors[a]
	if n == nil {
		n = &node{actor: a}
		w.actors[a] = n
	}
	return n
}

// follow finds what a node waits for.
func (w *walk) follow(n *node) {
	add := func(to *node) {
		n.out = append(n.out, to)
		to.in = append(to.in, n)
	}
	if n.meeting != nil {
		for _, a := range n.meeting.missing {
			to := w.actor(a)
			if a.busy(n.meeting.age) {
				if n.meeting.age < patience { // it may still come
					continue
				}
				to.astray = true
			}
			add(to)
		}
		return
	}
	if n.actor.note.Fate == Alive && !n.astray {
		for _, m := range n.actor.in {
			add(w.meeting(m))
		}
	}
}

// connect is Tarjan's algorithm for strongly connected components, without recursion: chains are as long as a job is wide.
func (w *walk) connect(root *node) {
	type frame struct {
		n    *node
		next int
	}
	var frames []frame
	enter := func(n *node) {
		w.seen = append(w.seen, n)
		n.index, n.low = len(w.seen), len(w.seen)
		w.stack = append(w.stack, n)
		n.onStack = true
		w.follow(n)
		frames = append(frames, frame{n: n})
	}
	enter(root)
	for len(frames) > 0 {
		f := &frames[len(frames)-1]
		if f.next < len(f.n.out) {
			to := f.n.out[f.next]
			f.next++
			switch {
			case to.index == 0:
				enter(to)
			case to.onStack:
				f.n.low = min(f.n.low, to.index)
			}
			continue
		}
		n := f.n
		frames = frames[:len(frames)-1]
		if len(frames) > 0 {
			parent := frames[len(frames)-1].n
			parent.low = min(parent.low, n.low)
		}
		if n.low == n.index {
			w.cut(n)
		}
	}
}

// cut takes a component off the stack.
func (w *walk) cut(n *node) {
	i := slices.Index(w.stack, n)
	knot := slices.Clone(w.stack[i:])
	w.stack = w.stack[:i]
	for _, k := range knot {
		k.onStack = false
	}
	if len(knot) > 1 {
		w.knots = append(w.knots, knot)
	}
}

// waitsFor lists who waits for any of the ends, directly or not, longest first, and without the ranks of which except tells.
func (w *walk) waitsFor(ends []*node, except func(*actor) bool) []Wait {
	reached := map[*node]bool{}
	queue := slices.Clone(ends)
	for _, n := range queue {
		reached[n] = true
	}
	var waits []Wait
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		if n.meeting != nil {
			for _, p := range n.meeting.present {
				if !except(p.actor) {
					waits = append(waits, waitOf(n.meeting, p))
				}
			}
		}
		for _, before := range n.in {
			if !reached[before] {
				reached[before] = true
				queue = append(queue, before)
			}
		}
	}
	slices.SortFunc(waits, longest)
	return waits
}

// waitOf is one rank's part in a meeting.
func waitOf(m *meeting, p *place) Wait {
	age := p.slot.Age
	if m.key.kind == joining {
		age = p.slot.open(tape.ActInit).Age
	}
	return Wait{Rank: rankOf(p.actor, m.key.comm), Comm: m.key.comm, Name: p.slot.Name, Call: m.call(p.slot), Seq: m.key.seq, Age: Age(age)}
}
