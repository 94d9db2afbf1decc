package host

import (
	"cmp"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// proxyConn is a connection with a rank of another node, on which the proxy of the carrier's process sends.
type proxyConn interface {
	Waits() tape.Phase
	Carrier() int
}

// The bounds of what the tape has of an operation: the ranks to which it sent longest, and of each the longest steps.
const (
	longPeers = 8
	longSteps = 4
)

// proxied is what the running operation sends to one rank of another node.
type proxied struct {
	proxyConn
	all     tape.Proxied
	offered int64          // since when the proxy has not taken all that it was offered; 0: it has
	waited  tape.Phase     // what the current step waits for, if the rank has slept meanwhile
	steps   []tape.Proxied // the longest ones
}

func newProxied(c proxyConn, peer int) *proxied {
	return &proxied{
		proxyConn: c,
		all:       tape.Proxied{Peer: int32(peer), Carrier: int32(c.Carrier())},
		steps:     make([]tape.Proxied, 0, longSteps),
	}
}

// reset begins the next operation.
func (s *proxied) reset() {
	s.all.Bytes, s.all.Start, s.all.End, s.all.Waited = 0, 0, 0, tape.PhaseNone
	s.offered, s.waited, s.steps = 0, tape.PhaseNone, s.steps[:0]
}

// offer says that the proxy is offered data.
func (s *proxied) offer() {
	if s.offered == 0 {
		s.offered = tape.Now()
		s.all.Start = cmp.Or(s.all.Start, s.offered)
	}
}

// took says that the proxy has taken n bytes of it, and whether it has left some.
func (s *proxied) took(n int, more bool) {
	if n == 0 {
		return
	}
	step := tape.Proxied{
		Step: true, Peer: s.all.Peer, Carrier: s.all.Carrier, Bytes: uint64(n),
		Start: s.offered, End: tape.Now(), Waited: s.waited,
	}
	s.all.Bytes += step.Bytes
	s.all.End, s.offered, s.waited = step.End, 0, tape.PhaseNone
	if more {
		s.offered = step.End
	}
	if len(s.steps) < longSteps {
		s.steps = append(s.steps, step)
		return
	}
	shortest := 0
	for i := range s.steps {
		if duration(&s.steps[i]) < duration(&s.steps[shortest]) {
			shortest = i
		}
	}
	if duration(&step) > duration(&s.steps[shortest]) {
		s.steps[shortest] = step
	}
}

func duration(s *tape.Proxied) int64 { return s.End - s.Start }

// waits says what data for the rank waits for.
func (s *proxied) waits(phase tape.Phase) { s.all.Waited, s.waited = phase, phase }

// tellProxied puts onto the tape what the running operation has sent to other nodes; while it is in progress, only what
// the proxy has not taken all of.
func (e *Engine) tellProxied(code lifecycle.Code) {
	now := tape.Now()
	var told []*proxied
	for _, s := range e.proxied {
		if s.all.Start < e.w.began || s.all.Start == 0 {
			continue // it is of an operation before
		}
		if s.all.Code = code; s.offered != 0 {
			s.all.End = now
		} else if code == lifecycle.CodeInProgress {
			continue
		}
		told = append(told, s)
	}
	slices.SortStableFunc(told, func(a, b *proxied) int { return cmp.Compare(duration(&b.all), duration(&a.all)) })
	for _, s := range told[:min(len(told), longPeers)] {
		e.tape.Proxied(&s.all)
		if len(s.steps) < 2 || code == lifecycle.CodeInProgress { // all in one; or they are told at the end
			continue
		}
		for i := range s.steps {
			e.tape.Proxied(&s.steps[i])
		}
	}
}
