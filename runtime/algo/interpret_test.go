package algo_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
)

// Case is an operation to check.
type Case struct {
	Request   algo.Request // Rank is ignored
	Algorithm algo.Algorithm
	InPlace   bool
	Seed      uint64
}

// String describes the case so that it can be found again.
func (c Case) String() string {
	place := "separate"
	if c.InPlace {
		place = "in place"
	}
	return fmt.Sprintf("%v by %v, %d ranks on nodes %v, root %d, %d elements of %d bytes, %s, seed %d",
		c.Request.Call, c.Algorithm, c.Request.Size, c.Request.Nodes, c.Request.Root,
		c.Request.Count, c.Request.ElemSize, place, c.Seed)
}

type rank struct {
	plan *algo.Plan
	bufs [3][]Value // by algo.Buffer
	post [2][]Value // by round
	done []int      // by step: elements done
	sent map[int][]int
	recv map[int][]int
}

// Run makes the plans of all ranks and [Check]s them. It returns the plans.
func Run(c Case) ([]*algo.Plan, error) {
	plans := make([]*algo.Plan, c.Request.Size)
	for r := range plans {
		req := c.Request
		req.Rank = r
		plans[r] = algo.Make(req, c.Algorithm)
	}
	return plans, Check(c, plans)
}

// Check checks the form of all ranks' plans and proves them free of races; then it interprets them, and checks every
// rank's Out at the end.
func Check(c Case, plans []*algo.Plan) error {
	ranks := make([]*rank, len(plans))
	for r, p := range plans {
		ranks[r] = newRank(c, r, p)
		if err := ranks[r].checkForm(c.Request.Size, r); err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
		if err := Races(c, r, p); err != nil {
			return err
		}
	}
	if err := interpret(ranks, rand.New(rand.NewPCG(c.Seed, 0))); err != nil {
		return err
	}
	return checkResult(c, ranks)
}

func newRank(c Case, r int, p *algo.Plan) *rank {
	in, out := buffers(c, r)
	k := &rank{
		plan: p, bufs: [3][]Value{algo.In: in, algo.Out: out, algo.Tmp: make([]Value, p.Tmp)},
		post: [2][]Value{slices.Clone(in)}, done: make([]int, len(p.Steps)), sent: map[int][]int{},
		recv: map[int][]int{},
	}
	for i, s := range p.Steps {
		switch s.Kind {
		case algo.StepSend:
			k.sent[s.Peer] = append(k.sent[s.Peer], i)
		case algo.StepRecv, algo.StepRecvReduce:
			k.recv[s.Peer] = append(k.recv[s.Peer], i)
		case algo.StepCopy, algo.StepReduce, algo.StepPost:
		}
	}
	return k
}

// checkForm checks the rules that every plan must follow.
func (k *rank) checkForm(size, self int) error {
	for i := range k.plan.Steps {
		s := &k.plan.Steps[i]
		bad := func(format string, args ...any) error {
			return fmt.Errorf("step %d (%v): %s", i, s, fmt.Sprintf(format, args...))
		}
		for _, sp := range append(Reads(s), Writes(s)...) {
			if sp.Len != s.Len() || sp.Len <= 0 {
				return bad("its spans have different lengths, or none")
			}
			if sp.Off < 0 || sp.Off+sp.Len > len(k.bufs[sp.Buf]) {
				return bad("it is outside of buffer %d, which has %d elements", sp.Buf, len(k.bufs[sp.Buf]))
			}
		}
		if w := Writes(s); len(w) > 0 && w[0].Buf == algo.In {
			return bad("it writes In")
		}
		if hasPeer(s) && (s.Peer < 0 || s.Peer >= size || s.Peer == self) {
			return bad("its peer is none")
		}
		if s.After != algo.None && (s.After < 0 || s.After >= i || k.plan.Steps[s.After].Len() != s.Len()) {
			return bad("After is no earlier step of the same length")
		}
		if s.Wait.From < 0 || s.Wait.From > s.Wait.To || s.Wait.To > i {
			return bad("Wait is no range of earlier steps")
		}
	}
	return nil
}

func hasPeer(s *algo.Step) bool {
	return s.Kind == algo.StepSend || s.Kind == algo.StepRecv || s.Kind == algo.StepRecvReduce
}

// Reads returns the spans that a step reads in its rank's memory.
func Reads(s *algo.Step) []algo.Span {
	var spans []algo.Span
	switch s.Kind {
	case algo.StepSend, algo.StepRecvReduce, algo.StepCopy, algo.StepPost:
		spans = []algo.Span{s.Src}
	case algo.StepReduce:
		spans = []algo.Span{s.Src, s.Src2}
	case algo.StepRecv:
	}
	return slices.DeleteFunc(spans, func(sp algo.Span) bool { return sp.Buf == algo.Posted })
}

// Writes returns the spans that a step writes in its rank's memory.
func Writes(s *algo.Step) []algo.Span {
	if s.Kind == algo.StepSend || s.Kind == algo.StepPost {
		return nil
	}
	return []algo.Span{s.Dst}
}

// limit returns how many elements of step i may be done by now.
func (k *rank) limit(i int) int {
	s := &k.plan.Steps[i]
	for w := s.Wait.From; w < s.Wait.To; w++ {
		if k.done[w] < k.plan.Steps[w].Len() {
			return 0
		}
	}
	if s.After != algo.None {
		return k.done[s.After]
	}
	return s.Len()
}

// head returns the first unfinished step of a list, algo.None if there is none.
func (k *rank) head(list []int) int {
	for _, i := range list {
		if k.done[i] < k.plan.Steps[i].Len() {
			return i
		}
	}
	return algo.None
}

// move is something that can progress: a message between two ranks, or a local step (to is then from).
type move struct{ from, to, send, recv int }

// interpret runs all ranks' steps until they are done, or none can continue.
func interpret(ranks []*rank, rng *rand.Rand) error {
	for {
		moves, left, err := possible(ranks)
		if err != nil {
			return err
		}
		if len(moves) == 0 {
			if left > 0 {
				return fmt.Errorf("deadlock: %d steps have not ended, and none can go on", left)
			}
			return nil
		}
		m := moves[rng.IntN(len(moves))]
		room := ranks[m.to].room(m.recv)
		if m.send != algo.None {
			room = min(room, ranks[m.from].room(m.send))
		}
		n := 1 + rng.IntN(room)
		if rng.IntN(4) == 0 {
			n = room
		}
		apply(ranks, m, n)
	}
}

func (k *rank) room(i int) int { return k.limit(i) - k.done[i] }

// possible lists the moves that can progress now, and counts the steps that have not ended.
func possible(ranks []*rank) (moves []move, left int, err error) {
	for r, k := range ranks {
		for i := range k.plan.Steps {
			s := &k.plan.Steps[i]
			if k.done[i] == s.Len() {
				continue
			}
			left++
			if !hasPeer(s) && k.room(i) > 0 && (s.Src.Buf != algo.Posted || len(ranks[s.Peer].post[s.Round]) > 0) {
				moves = append(moves, move{r, r, algo.None, i})
			}
		}
		for peer, list := range k.sent {
			send, recv := k.head(list), ranks[peer].head(ranks[peer].recv[r])
			if send == algo.None {
				continue
			}
			if recv == algo.None {
				return nil, 0, fmt.Errorf("rank %d sends step %d to rank %d, which expects nothing more", r, send, peer)
			}
			if a, b := k.plan.Steps[send].Len(), ranks[peer].plan.Steps[recv].Len(); a != b {
				return nil, 0, fmt.Errorf("rank %d sends %d elements (step %d) to rank %d, which expects %d (step %d)",
					r, a, send, peer, b, recv)
			}
			if k.room(send) > 0 && ranks[peer].room(recv) > 0 {
				moves = append(moves, move{r, peer, send, recv})
			}
		}
	}
	return moves, left, nil
}

// apply does n elements of a move.
func apply(ranks []*rank, m move, n int) {
	k := ranks[m.to]
	s := &k.plan.Steps[m.recv]
	for range n {
		at := k.done[m.recv]
		var v Value
		if m.send != algo.None {
			f := ranks[m.from]
			src := f.plan.Steps[m.send].Src
			v = f.bufs[src.Buf][src.Off+f.done[m.send]]
			f.done[m.send]++
		}
		own := func(sp algo.Span) Value {
			if sp.Buf == algo.Posted {
				return ranks[s.Peer].post[s.Round][sp.Off+at]
			}
			return k.bufs[sp.Buf][sp.Off+at]
		}
		switch s.Kind {
		case algo.StepRecvReduce:
			if s.IncomingFirst {
				v = v.Combine(own(s.Src))
			} else {
				v = own(s.Src).Combine(v)
			}
		case algo.StepCopy:
			v = own(s.Src)
		case algo.StepReduce:
			v = own(s.Src).Combine(own(s.Src2))
		case algo.StepRecv, algo.StepSend, algo.StepPost:
		}
		k.done[m.recv]++
		if s.Kind != algo.StepPost {
			k.bufs[s.Dst.Buf][s.Dst.Off+at] = v
		} else if k.done[m.recv] == s.Src.Len { // all at once
			k.post[s.Round] = slices.Clone(k.bufs[s.Src.Buf][s.Src.Off:][:s.Src.Len])
		}
	}
}

// layout returns how many elements rank r's In and Out have, and, for in-place calls, where In begins in Out, or Out in
// In: at least one of the two is 0.
func layout(c Case, r int) (in, out, inOff, outOff int) {
	n, size := c.Request.Count, c.Request.Size
	root := r == c.Request.Root
	switch c.Request.Call { //nolint:exhaustive // only collectives have plans
	case lifecycle.CallAllReduce:
		return n, n, 0, 0
	case lifecycle.CallBroadcast:
		if !root && !c.InPlace {
			return 0, n, 0, 0
		}
		return n, n, 0, 0
	case lifecycle.CallReduce:
		if !root {
			return n, 0, 0, 0
		}
		return n, n, 0, 0
	case lifecycle.CallAllGather:
		return n, n * size, r * n, 0
	case lifecycle.CallReduceScatter:
		return n * size, n, 0, r * n
	case lifecycle.CallAllToAll:
		return n * size, n * size, 0, 0
	case lifecycle.CallGather:
		if !root {
			return n, 0, 0, 0
		}
		return n, n * size, r * n, 0
	case lifecycle.CallScatter:
		if !root {
			return 0, n, 0, 0
		}
		return n * size, n, 0, r * n
	}
	return 0, 0, 0, 0
}

// shares reports whether rank r's In and Out share memory in this case.
func shares(c Case, r int) bool {
	in, out, _, _ := layout(c, r)
	return c.InPlace && c.Request.Call != lifecycle.CallAllToAll && in > 0 && out > 0
}

// buffers makes rank r's In, filled, and its Out.
func buffers(c Case, r int) (in, out []Value) {
	nIn, nOut, inOff, outOff := layout(c, r)
	in, out = make([]Value, nIn), make([]Value, nOut)
	if shares(c, r) {
		if nIn <= nOut {
			in = out[inOff : inOff+nIn]
		} else {
			out = in[outOff : outOff+nOut]
		}
	}
	for i := range in {
		in[i] = Original(r, i)
	}
	return in, out
}

// checkResult compares every Out with the defined result of the call, and In with its original contents.
func checkResult(c Case, ranks []*rank) error {
	if c.Request.Call == lifecycle.CallBarrier {
		return nil
	}
	for r, k := range ranks {
		for i, v := range k.bufs[algo.Out] {
			if want := expected(c, r, i); v.Sum != want {
				return fmt.Errorf("rank %d: element %d of Out has the value %x, want %x", r, i, v.Sum, want)
			}
			if c.Request.Call == lifecycle.CallAllReduce && v != ranks[0].bufs[algo.Out][i] {
				return fmt.Errorf("rank %d: element %d of Out was summed in another order than on rank 0", r, i)
			}
		}
		if shares(c, r) {
			continue
		}
		for i, v := range k.bufs[algo.In] {
			if v != Original(r, i) {
				return fmt.Errorf("rank %d: its In was written", r)
			}
		}
	}
	return nil
}

// expected returns the Sum of element i of rank r's Out.
func expected(c Case, r, i int) uint64 {
	n, root := c.Request.Count, c.Request.Root
	all := func(i int) (sum uint64) {
		for p := range c.Request.Size {
			sum += Original(p, i).Sum
		}
		return sum
	}
	switch c.Request.Call { //nolint:exhaustive // only collectives have plans
	case lifecycle.CallBroadcast:
		return Original(root, i).Sum
	case lifecycle.CallAllGather, lifecycle.CallGather:
		return Original(i/n, i%n).Sum
	case lifecycle.CallReduceScatter:
		return all(r*n + i)
	case lifecycle.CallAllToAll:
		return Original(i/n, r*n+i%n).Sum
	case lifecycle.CallScatter:
		return Original(root, r*n+i).Sum
	}
	return all(i)
}
