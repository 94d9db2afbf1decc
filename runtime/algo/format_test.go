package algo

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// String formats a plan for humans, a step per line.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v, %d elements of scratch\n", p.Algorithm, p.Tmp)
	for i := range p.Steps {
		fmt.Fprintf(&b, "%2d  %v\n", i, &p.Steps[i])
	}
	return b.String()
}

// String formats a step for humans: what it does, and what it waits for.
func (s *Step) String() string {
	var text string
	switch s.Kind {
	case StepSend:
		text = fmt.Sprintf("send to %d: %v", s.Peer, s.Src)
	case StepRecv:
		text = fmt.Sprintf("%v = from %d", s.Dst, s.Peer)
	case StepRecvReduce:
		if s.IncomingFirst {
			text = fmt.Sprintf("%v = from %d op %v", s.Dst, s.Peer, s.Src)
		} else {
			text = fmt.Sprintf("%v = %v op from %d", s.Dst, s.Src, s.Peer)
		}
	case StepCopy:
		text = fmt.Sprintf("%v = %v", s.Dst, s.Src)
	case StepPost:
		text = fmt.Sprintf("post %v", s.Src)
	case StepReduce:
		text = fmt.Sprintf("%v = %v op %v", s.Dst, s.Src, s.Src2)
	}
	if s.After != None {
		text += fmt.Sprintf("; after %d", s.After)
	}
	if w := s.Wait; w.To-w.From == 1 {
		text += fmt.Sprintf("; wait for %d", w.From)
	} else if w.To > w.From {
		text += fmt.Sprintf("; wait for %d to %d", w.From, w.To-1)
	}
	return text
}

// String formats the span as a slice expression.
func (s Span) String() string {
	names := [...]string{In: "in", Out: "out", Tmp: "tmp", Posted: "posted"}
	return fmt.Sprintf("%s[%d:%d]", names[s.Buf], s.Off, s.Off+s.Len)
}

// There must be a plan for whatever the table chooses.
func TestEveryRuleHasAPlan(t *testing.T) {
	for _, r := range rules() {
		if !slices.Contains(For(r.call), r.take) {
			t.Errorf("rule %+v: there is no such algorithm for the call", r)
		}
	}
}
