package algo_test

import (
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
)

// Each way of spoiling a good plan must be detected.
func TestCheckFinds(t *testing.T) {
	allReduce := func(a algo.Algorithm) Case {
		return Case{
			Request:   algo.Request{Call: lifecycle.CallAllReduce, Size: 3, Count: 6, ElemSize: 1 << 20},
			Algorithm: a, InPlace: true, Seed: 1,
		}
	}
	oneShot, broadcast := allReduce(algo.Direct), allReduce(algo.Direct)
	oneShot.Request.ElemSize = 8
	broadcast.Request.Call = lifecycle.CallBroadcast
	for _, c := range []struct {
		name  string
		c     Case
		spoil func(plans []*algo.Plan)
		want  string
	}{
		{"nothing", allReduce(algo.Ring), func([]*algo.Plan) {}, ""},
		{"a wrong result", allReduce(algo.Ring), func(p []*algo.Plan) { p[1].Steps[1].Src.Off += 2 }, "has the value"},
		{"another order", oneShot, func(p []*algo.Plan) {
			for i := range p[1].Steps {
				p[1].Steps[i].IncomingFirst = false
			}
		}, "in another order"},
		{"a message of another length", broadcast, func(p []*algo.Plan) {
			for i := range p[0].Steps {
				if s := &p[0].Steps[i]; s.Kind == algo.StepSend {
					s.Src.Len--
				}
			}
		}, "which expects 6"},
		{"a message too many", allReduce(algo.Ring), func(p []*algo.Plan) {
			p[2].Steps = append(p[2].Steps, algo.Step{
				Kind: algo.StepSend, Peer: 0, Src: algo.Span{Buf: algo.In, Len: 1},
				After: algo.None,
			})
		}, "expects nothing more"},
		{
			"a message too few", allReduce(algo.Ring),
			func(p []*algo.Plan) { p[2].Steps = p[2].Steps[:len(p[2].Steps)-1] }, "expects nothing more",
		},
		{"a receive that waits for its own send, all around", allReduce(algo.RecursiveDoubling), func(p []*algo.Plan) {
			for _, q := range p[1:] {
				for i := range q.Steps {
					if s := &q.Steps[i]; s.Kind == algo.StepRecvReduce && i > 0 && q.Steps[i-1].Kind == algo.StepSend {
						s.Wait = algo.Range{From: i - 1, To: i}
					}
				}
			}
		}, "deadlock"},
		{"a write before a send has read", allReduce(algo.Ring), func(p []*algo.Plan) {
			for i := range p[0].Steps {
				if s := &p[0].Steps[i]; s.Kind == algo.StepRecv {
					s.After = algo.None
				}
			}
		}, "before step"},
		{"a send before what it sends is there", allReduce(algo.Direct), func(p []*algo.Plan) {
			for i := range p[0].Steps {
				p[0].Steps[i].After = algo.None
			}
		}, "before step"},
		{
			"a step that follows a later one", allReduce(algo.Ring), func(p []*algo.Plan) { p[0].Steps[1].After = 2 },
			"After is no earlier step",
		},
		{
			"a wait for itself", allReduce(algo.Ring),
			func(p []*algo.Plan) { p[0].Steps[1].Wait = algo.Range{From: 1, To: 2} }, "Wait is no range",
		},
		{"a write to In", allReduce(algo.Ring), func(p []*algo.Plan) {
			p[0].Steps[1].Dst.Buf = algo.In
		}, "it writes In"},
		{
			"a span outside of its buffer", allReduce(algo.Ring), func(p []*algo.Plan) { p[0].Steps[0].Src.Off = 5 },
			"outside of buffer",
		},
		{
			"spans of different lengths", allReduce(algo.Ring), func(p []*algo.Plan) { p[0].Steps[1].Dst.Len-- },
			"different lengths",
		},
		{"a message to itself", allReduce(algo.Ring), func(p []*algo.Plan) {
			p[0].Steps[0].Peer = 0
		}, "its peer is none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			plans, err := Run(c.c)
			if err != nil {
				t.Fatalf("unspoiled: %v", err)
			}
			c.spoil(plans)
			err = Check(c.c, plans)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("a good plan is refused: %v", err)
			case c.want == "":
			case err == nil:
				t.Error("it is not found out")
			case !strings.Contains(err.Error(), c.want):
				t.Errorf("it is found out as %q, want %q", err, c.want)
			}
		})
	}
}
