package host

import (
	"cmp"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// proxyConn is a connection to a rank of another node. The proxy in the carrier's process does the sending.
type proxyConn interface {
	Waits() tape.Phase
	Carrier() int
}

// These bound what the tape gets of an operation: the peers to which sending took longest, and the longest steps of
// each.
const (
	longPeers = 8
	longSteps = 4
)

// proxied describes what the running operation sends to one rank of another node.
type proxied struct {
	proxyConn
	all     tape.Proxied
	offered int64          // when the proxy was offered data that it hasn't taken completely; 0 if it has taken all
	waited  tape.Phase     // what the current step waits for, if the rank has slept during it
	steps   []tape.Proxied // the longest ones
}

func newProxied(c proxyConn, peer int) *proxied {
	return &proxied{
		proxyConn: c,
		all:       tape.Proxied{Peer: int32(peer), Carrier: int32(c.Carrier())},
		steps:     make([]tape.Proxied, 0, longSteps),
	}
}

// reset prepares for the next operation.
func (s *proxied) reset() {
	s.all.Bytes, s.all.Start, s.all.End, s.all.Waited = 0, 0, 0, tape.PhaseNone
	s.offered, s.waited, s.steps = 0, tape.PhaseNone, s.steps[:0]
}

// offer records that the proxy is offered data.
func (s *proxied) offer() {
	if s.offered == 0 {
		s.offered = tape.Now()
		s.all.Start = cmp.Or(s.all.Start, s.offered)
	}
}

// took records that the proxy has taken n of the offered bytes, and whether some are left.
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

// waits records what the data for the rank waits for.
func (s *proxied) waits(phase tape.Phase) { s.all.Waited, s.waited = phase, phase }

// tellProxied writes onto the tape what the running operation has sent to other nodes. While the operation is in
// progress, it only includes peers whose data the proxy has not taken completely.
func (e *Engine) tellProxied(code lifecycle.Code) {
	now := tape.Now()
	var told []*proxied
	for _, s := range e.proxied {
		if s.all.Start < e.w.began || s.all.Start == 0 {
			continue // it belongs to an earlier operation
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
		if len(s.steps) < 2 || code == lifecycle.CodeInProgress { // one step only, or the steps follow at the end
			continue
		}
		for i := range s.steps {
			e.tape.Proxied(&s.steps[i])
		}
	}
}
