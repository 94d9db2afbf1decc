package model

import (
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// maxRecent is how many of a lane's last calls are compared with those before.
const maxRecent = 128

// Odd is a call at a point of the program where the rank had always made another call.
type Odd struct {
	Did    Call
	Before int  // how often the rank had made the call before
	Usual  Call // the other call; its Start means nothing
	Times  int  // how often the rank made it
}

// habitual tells whether a call can be odd: a call that is part of an act can't.
func (c *Call) habitual() bool { return c.Signature.Call != lifecycle.CallSplit }

// kind identifies calls that recur in each step.
type kind struct {
	generation uint32
	sig        tape.Signature
}

func (c *Call) kind() kind { return kind{c.Generation, c.Signature} }

// lane holds calls that were made one after another.
type lane struct {
	calls []*Call
	ids   []int // equal for calls of one kind
	count []int // of each kind
}

func newLane(calls []*Call) *lane {
	l := &lane{}
	for _, c := range calls {
		if c.habitual() {
			l.calls = append(l.calls, c)
		}
	}
	l.ids = make([]int, len(l.calls))
	kinds := make(map[kind]int)
	for i, c := range l.calls {
		id, known := kinds[c.kind()]
		if !known {
			id = len(kinds)
			kinds[c.kind()] = id
			l.count = append(l.count, 0)
		}
		l.ids[i] = id
		l.count[id]++
	}
	return l
}

// odd returns the odd calls, the last one first, the next call, nil if unknown, and the number of calls in a step. Rare
// calls, such as a barrier after each epoch, make steps unequal: they are left out, the rarest first, until equal steps
// are found.
func (l *lane) odd() (odd []Odd, next *Odd, step int) {
	levels := slices.Sorted(slices.Values(l.count))
	rare := 0 // calls left out
	for len(levels) > 0 && callsPerRare*rare <= len(l.calls) {
		least := levels[0]
		if odd, next, step = l.compare(least); step > 0 {
			return odd, next, step
		}
		for len(levels) > 0 && levels[0] == least {
			rare += least
			levels = levels[1:]
		}
	}
	return nil, nil, 0
}

// callsPerRare is how many calls a lane must have for each one that is left out.
const callsPerRare = 12

// compare compares the recent calls of frequent kinds, which have least or more calls. step is the number of frequent
// calls in the last step found; 0 if none was found. Rarer calls are additional or, if the program goes on after as
// many usual calls, in the places of those.
func (l *lane) compare(least int) (odd []Odd, next *Odd, step int) {
	s := steps{lane: l, same: make([]int, len(l.calls)+1)}
	for _, n := range l.count {
		if n >= least {
			s.kinds++
		}
	}
	known := make([]bool, len(l.count)) // kinds with an earlier call
	var rare []int                      // indices of the rare calls since the last frequent one
	found := 0                          // odd calls before the rare ones
	for i := 0; i <= len(l.calls); i++ {
		lag, times := 0, 0
		if i >= len(l.calls)-maxRecent {
			lag, times = s.period()
		}
		isRare := i < len(l.calls) && l.count[l.ids[i]] < least
		if times > 0 {
			step = lag
			usual := s.calls[len(s.calls)-lag:] // the calls of a step, from the one that should come now
			instead := func(i, place int) Odd {
				before := 0
				for _, id := range l.ids[:i] {
					if id == l.ids[i] {
						before++
					}
				}
				return Odd{Did: *l.calls[i], Before: before, Usual: *l.calls[usual[place]], Times: times}
			}
			switch n := len(rare); {
			case i == len(l.calls):
				next = &Odd{Usual: *l.calls[usual[0]], Times: times}
			case l.ids[i] == l.ids[usual[0]]:
				l.calls[i].Usual = true
			case isRare && (known[l.ids[i]] || times < minRepeatsNew || l.first(i)):
			case isRare && n < lag && l.alike(i, usual[n]):
				odd = append(odd, instead(i, n))
			case n > 0 && n < lag && l.ids[i] == l.ids[usual[n]]:
				l.calls[i].Usual = true
				odd = odd[:found]
				for place, at := range rare {
					odd = append(odd, instead(at, place))
					s.add(usual[place])
				}
			case known[l.ids[i]] || times >= minRepeatsNew && !l.first(i):
				odd = append(odd, instead(i, 0))
			}
		}
		if i == len(l.calls) {
			break
		}
		known[l.ids[i]] = true
		if isRare {
			rare = append(rare, i)
			continue
		}
		rare, found = nil, len(odd)
		s.add(i)
	}
	slices.Reverse(odd)
	return odd[:min(len(odd), maxOdd)], next, step
}

// alike tells whether two calls, by their indices, differ only in their arguments.
func (l *lane) alike(i, k int) bool {
	a, b := l.calls[i], l.calls[k]
	return a.Generation == b.Generation && a.Signature.Call == b.Signature.Call
}

// first tells whether call i is the first on its communicator: its usual place is not known yet.
func (l *lane) first(i int) bool {
	return !slices.ContainsFunc(l.calls[:i], func(o *Call) bool { return o.Generation == l.calls[i].Generation })
}

// The least repetitions that make a sequence of calls a period, and the least after which a call of a new kind is odd:
// the first step of a program may begin with a loop.
const (
	minRepeats    = 3
	minRepeatsNew = 5
)

// steps looks for the steps of a program in the frequent calls of a lane.
type steps struct {
	lane  *lane
	calls []int // indices of the frequent calls so far
	same  []int // by lag: how many of the last calls equal the calls lag places earlier
	kinds int   // how many kinds of calls are frequent
}

// add adds a call, by its index.
func (s *steps) add(i int) {
	ids, n := s.lane.ids, len(s.calls)
	s.calls = append(s.calls, i)
	for lag := 1; lag <= n; lag++ {
		if ids[i] == ids[s.calls[n-lag]] {
			s.same[lag]++
		} else {
			s.same[lag] = 0
		}
	}
}

// period is the length of the shortest sequence of frequent calls that has been repeated until now, makes up most of
// the calls, and has all their kinds: a step of the training. So the next call should equal the one lag calls ago.
// times is the number of repetitions; 0 if there is no such sequence. A run of calls of one kind is no step: its end
// can't be determined.
func (s *steps) period() (lag, times int) {
	n, kinds := len(s.calls), s.kinds
	if kinds < 2 {
		return 0, 0
	}
	seen := make([]bool, len(s.lane.count))
	for lag := 1; minRepeats*lag <= n; lag++ {
		if id := s.lane.ids[s.calls[n-lag]]; !seen[id] {
			seen[id] = true
			kinds--
		}
		if kinds == 0 && s.same[lag] >= (minRepeats-1)*lag && 2*(lag+s.same[lag]) >= n {
			return lag, 1 + s.same[lag]/lag
		}
	}
	return 0, 0
}
