package algo_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
)

func collectives() []lifecycle.Call {
	var calls []lifecycle.Call
	for c := lifecycle.CallAllReduce; c <= lifecycle.CallBarrier; c++ {
		if algo.For(c) != nil {
			calls = append(calls, c)
		}
	}
	return calls
}

// placements returns the nodes of size ranks, for an algorithm that depends on them: none, equal numbers of ranks on
// each, in order and interleaved, and more ranks on one node than on the other.
func placements(a algo.Algorithm, size int) [][]int {
	all := [][]int{nil}
	if a != algo.Hierarchical || size < 2 {
		return all
	}
	uneven := make([]int, size)
	uneven[size-1] = 1
	all = append(all, uneven)
	for m := 2; m <= size; m++ {
		if size%m == 0 {
			ordered, dealt := make([]int, size), make([]int, size)
			for r := range size {
				ordered[r], dealt[r] = r/(size/m), r%m
			}
			all = append(all, ordered, dealt)
		}
	}
	return all
}

// board returns room for all that the cases post, if the algorithm needs it.
func board(a algo.Algorithm) int {
	if a >= algo.OneShot {
		return 1 << 30
	}
	return 0
}

// check runs a case, and compares the amount sent with the documentation of the algorithms.
func check(c Case) error {
	plans, err := Run(c)
	if err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	total := 0
	for _, p := range plans {
		for _, step := range p.Steps {
			if step.Kind == algo.StepSend {
				total += step.Src.Len
			}
		}
	}
	c.Algorithm = plans[0].Algorithm // another one if this one is impossible
	want := sent(c)
	if plans[0].Algorithm >= algo.OneShot {
		want = 0
	}
	if total != want {
		return fmt.Errorf("%v: all ranks send %d elements, want %d", c, total, want)
	}
	return nil
}

// sent returns how many elements all ranks together send.
func sent(c Case) int {
	n, count := c.Request.Size, c.Request.Count
	if n == 1 {
		return 0
	}
	pow := 1
	log := 0
	for pow*2 <= n {
		pow, log = pow*2, log+1
	}
	bitsSet := func() (sum int) {
		for v := range n {
			for w := v; w > 0; w &= w - 1 {
				sum++
			}
		}
		return sum
	}
	switch c.Request.Call {
	case lifecycle.CallBarrier:
		return 0
	case lifecycle.CallAllReduce:
		switch {
		case c.Algorithm == algo.RecursiveDoubling:
			return count * (pow*log + 2*(n-pow))
		case c.Algorithm == algo.Direct && count*c.Request.ElemSize <= 16<<10:
			return count * n * (n - 1)
		}
		return 2 * count * (n - 1)
	case lifecycle.CallBroadcast, lifecycle.CallReduce:
		return count * (n - 1)
	case lifecycle.CallGather, lifecycle.CallScatter:
		if c.Algorithm == algo.Tree {
			return count * bitsSet()
		}
		return count * (n - 1)
	default:
		return count * n * (n - 1)
	}
}

func TestPlansAreRight(t *testing.T) {
	for _, call := range collectives() {
		t.Run(call.String(), func(t *testing.T) {
			t.Parallel()
			for _, a := range algo.For(call) {
				for size := 1; size <= 17; size++ {
					// A huge element turns a small count into a large message.
					for _, shape := range [][2]int{{0, 8}, {1, 8}, {size - 1, 8}, {size + 1, 8}, {size + 2, 1 << 20}} {
						for _, nodes := range placements(a, size) {
							for _, inPlace := range []bool{false, true} {
								c := Case{
									Request: algo.Request{
										Call: call, Size: size, Root: (size * 2) / 3 % size,
										Count: shape[0], ElemSize: shape[1], Board: board(a), Nodes: nodes,
									},
									Algorithm: a, InPlace: inPlace, Seed: uint64(size),
								}
								if err := check(c); err != nil {
									t.Fatal(err)
								}
							}
						}
					}
				}
			}
		})
	}
}

func TestPlansAreRightForAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		call := rapid.SampledFrom(collectives()).Draw(t, "call")
		size := rapid.IntRange(1, 17).Draw(t, "size")
		a := rapid.SampledFrom(algo.For(call)).Draw(t, "algorithm")
		c := Case{
			Request: algo.Request{
				Call: call, Size: size, Root: rapid.IntRange(0, size-1).Draw(t, "root"),
				Count:    rapid.IntRange(0, 40).Draw(t, "count"),
				ElemSize: rapid.SampledFrom([]int{1, 4, 8, 1 << 20}).Draw(t, "element"), Board: board(a),
				Nodes: rapid.SampledFrom(placements(a, size)).Draw(t, "nodes"),
			},
			Algorithm: a,
			InPlace:   rapid.Bool().Draw(t, "in place"),
			Seed:      rapid.Uint64().Draw(t, "seed"),
		}
		if err := check(c); err != nil {
			t.Fatal(err)
		}
	})
}

// Large counts have aligned chunks; these must still cover everything exactly once.
func TestChunksOfLargeCounts(t *testing.T) {
	for _, a := range []algo.Algorithm{algo.Ring, algo.Direct} {
		c := Case{
			Request:   algo.Request{Call: lifecycle.CallAllReduce, Size: 3, Count: 1000, ElemSize: 1024},
			Algorithm: a, InPlace: true, Seed: 7,
		}
		if err := check(c); err != nil {
			t.Fatal(err)
		}
		for _, s := range algo.Make(c.Request, a).Steps {
			if s.Kind == algo.StepSend && s.Src.Off%64 != 0 {
				t.Errorf("%v: a chunk starts at element %d, want a multiple of 64", a, s.Src.Off)
			}
		}
	}
}

// TestPlans compares plans of single ranks with testdata: CALL ALGORITHM rank=R size=N count=ELEMENTS element=BYTES
// [nodes=M].
func TestPlans(t *testing.T) {
	datadriven.RunTest(t, "testdata/plans.txt", func(t *testing.T, d *datadriven.TestData) string {
		var r algo.Request
		for _, c := range collectives() {
			if c.String() == d.Cmd {
				r.Call = c
			}
		}
		a, err := algo.ParseAlgorithm(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		d.ScanArgs(t, "rank", &r.Rank)
		d.ScanArgs(t, "size", &r.Size)
		d.ScanArgs(t, "count", &r.Count)
		d.ScanArgs(t, "element", &r.ElemSize)
		if nodes := 0; d.HasArg("nodes") {
			d.ScanArgs(t, "nodes", &nodes)
			for rank := range r.Size {
				r.Nodes = append(r.Nodes, rank*nodes/r.Size)
			}
		}
		return algo.Make(r, a).String()
	})
}

func TestChoose(t *testing.T) {
	two := []int{0, 0, 1, 1}
	for _, c := range []struct {
		req  algo.Request
		want algo.Algorithm
	}{
		{algo.Request{Call: lifecycle.CallAllReduce, Size: 4, Count: 1, ElemSize: 8}, algo.Direct},
		{
			algo.Request{Call: lifecycle.CallAllReduce, Size: 4, Count: 1, ElemSize: 8, Nodes: two},
			algo.RecursiveDoubling,
		},
		{
			algo.Request{Call: lifecycle.CallAllReduce, Size: 4, Count: 1 << 20, ElemSize: 8, Nodes: two},
			algo.Hierarchical,
		},
		{
			algo.Request{Call: lifecycle.CallAllReduce, Size: 4, Count: 1 << 20, ElemSize: 8, Nodes: []int{0, 0, 0, 1}},
			algo.Ring,
		},
		{
			algo.Request{Call: lifecycle.CallAllReduce, Size: 4, Count: 1 << 20, ElemSize: 8, Nodes: []int{0, 1, 2, 3}},
			algo.Ring,
		},
		{algo.Request{Call: lifecycle.CallBarrier, Size: 4, ElemSize: 1}, algo.Direct},
		{algo.Request{Call: lifecycle.CallAllReduce, Size: 4, Count: 1, ElemSize: 8, Board: 8}, algo.OneShot},
		{algo.Request{Call: lifecycle.CallAllReduce, Size: 4, Count: 2, ElemSize: 8, Board: 8}, algo.Direct},
		{algo.Request{Call: lifecycle.CallAllToAll, Size: 4, Count: 1, ElemSize: 8, Board: 24}, algo.Direct},
	} {
		if got := algo.Make(c.req, algo.Auto).Algorithm; got != c.want {
			t.Errorf("Make(%+v) takes %v, want %v", c.req, got, c.want)
		}
	}
	large := algo.Request{Call: lifecycle.CallAllReduce, Size: 4, Count: 1 << 20, ElemSize: 8}
	if got := algo.Make(large, algo.Tree).Algorithm; got != algo.Tree {
		t.Errorf("overridden, Make takes %v, want %v", got, algo.Tree)
	}
	large.Call = lifecycle.CallAllToAll // AllToAll has no tree
	if got := algo.Make(large, algo.OneShot).Algorithm; got != algo.Direct {
		t.Errorf("overridden by what has no room, Make takes %v, want %v", got, algo.Direct)
	}
	if got := algo.Make(large, algo.Tree).Algorithm; got != algo.Direct {
		t.Errorf("overridden by what it hasn't, Make takes %v, want %v", got, algo.Direct)
	}
}

func TestAlgorithmNames(t *testing.T) {
	for a := algo.Auto; a <= algo.TwoShot; a++ {
		got, err := algo.ParseAlgorithm(strings.ToUpper(a.String()))
		if err != nil || got != a {
			t.Errorf("ParseAlgorithm(%q) is %v, %v", strings.ToUpper(a.String()), got, err)
		}
	}
	if got := algo.Algorithm(99).String(); got != "algorithm(99)" {
		t.Errorf("an unknown algorithm is called %q", got)
	}
}
