package model

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Limits of a history and of a Habit.
const (
	maxHistory = 2048 // calls of a rank
	maxOdd     = 4    // odd calls that are kept, the last ones
	maxTrail   = 128  // calls of a trail
)

// History holds the last operations of a rank on all its communicators. Training makes the same calls in the same
// order, step after step, so a history shows which rank's call is out of order when ranks disagree.
//
// Communicators whose calls were ever in flight at the same time are used by different goroutines, or asynchronously,
// so the order of their calls has no meaning. They are in different lanes: only calls of one lane are ordered. Nor are
// calls before an error ordered with those after it. Calls of one group are made together, in no order.
type History struct {
	calls []Call
	apart overlaps // that were known when calls were last left out
}

// overlaps has communicators whose calls overlapped, and when the last such call was made.
type overlaps map[pair]int64

// pair is two communicators, by generation, the older one first.
type pair struct{ a, b uint32 }

func pairOf(a, b uint32) pair { return pair{min(a, b), max(a, b)} }

// Call is a call of a history.
type Call struct {
	Generation uint32 // of the communicator
	Signature  tape.Signature
	Seq        uint64
	Start      int64
	Usual      bool  // the rank has always made this call here
	Together   bool  // in a trail: the communicator's call before it had not returned
	group      int64 // when the group with the call was ended; 0: it is in no group
	end        int64 // 0 while it is in flight
	failed     bool
}

// CallOf returns the call of an operation, which may be in flight.
func (c *Comm) CallOf(o *Op) Call {
	call := Call{
		Generation: c.Generation, Signature: o.Signature, Seq: o.Seq, Start: o.Start, end: o.End,
		failed: o.Code != lifecycle.CodeOK,
	}
	running := slices.IndexFunc(c.Acts, func(a *Act) bool { return a.Kind == tape.ActGroup && !a.Unended() })
	if running >= 0 && c.Acts[running].Start <= o.Start {
		call.group = c.Acts[running].Start
	}
	return call
}

// made is when the program made the call. The calls of a group are made when the program ends the group, in no order.
func (c *Call) made() int64 { return cmp.Or(c.group, c.Start) }

// compareMade orders calls by when they were made, those of a group by communicator.
func compareMade(a, b Call) int {
	order := cmp.Compare(a.made(), b.made())
	if order == 0 && a.group != 0 {
		order = cmp.Compare(a.Generation, b.Generation)
	}
	return cmp.Or(order, cmp.Compare(a.Start, b.Start))
}

// is tells whether two Calls are the same call. A call whose launch has ended may still be in flight; then its Start is
// the launch, which in a group, or on a non-blocking communicator, is later than the call.
func (c *Call) is(o Call) bool {
	return c.Generation == o.Generation && c.Seq == o.Seq && c.Signature == o.Signature
}

func (h *History) add(c *Comm, o *Op) {
	if !kept(o.Signature.Call) {
		return
	}
	if len(h.calls) == maxHistory {
		slices.SortStableFunc(h.calls, compareMade)
		of, members, apart := lanes(h.calls, h.apart)
		h.calls, h.apart = lastOf(h.calls, of, len(members), maxHistory/2), apart
		first := map[uint32]int64{} // calls of communicators
		for _, c := range slices.Backward(h.calls) {
			first[c.Generation] = c.made()
		}
		maps.DeleteFunc(h.apart, func(p pair, at int64) bool {
			return at < cmp.Or(first[p.a], math.MaxInt64) && at < cmp.Or(first[p.b], math.MaxInt64)
		})
	}
	h.calls = append(h.calls, c.CallOf(o))
}

// lastOf keeps the last calls of each lane, most of them in all; of has the lane of each call. Lanes have equal shares,
// and what others don't need: so a heartbeat doesn't displace the calls of the training while that waits.
func lastOf(calls []Call, of []int, lanes, most int) []Call {
	counts := make([]int, lanes)
	for _, lane := range of {
		counts[lane]++
	}
	left := make([]int, lanes) // calls to leave out
	sorted := slices.Sorted(slices.Values(counts))
	share := 0
	for i, n := range sorted {
		share = most / (lanes - i)
		if n > share {
			break
		}
		most -= n
	}
	for lane, n := range counts {
		left[lane] = max(n-share, 0)
	}
	last := calls[:0]
	for i, lane := range of {
		if left[lane]--; left[lane] < 0 {
			last = append(last, calls[i])
		}
	}
	return last
}

// kept tells whether a call is part of a history.
func kept(call lifecycle.Call) bool {
	return call.IsOperation() || call == lifecycle.CallGroupEnd || call == lifecycle.CallSplit
}

// Habit compares a rank's last calls with its history.
type Habit struct {
	Odd   []Odd      // odd calls among the recent calls and those in flight, the last one first
	Next  *Odd       // its Usual is the call that has always followed the last calls; nil if unknown
	Trail []Call     // the last calls and those in flight, in the order of their starts
	Lanes [][]uint32 // the communicators of each lane, by generation
	Steps []int      // the number of calls in a step of each lane; 0: unknown
	// Aside are, by a communicator's generation, the communicators on which the program went on for whole steps while a
	// call on it lasted: their calls don't wait for such a call.
	Aside map[uint32][]uint32
}

// Habit compares each of the last calls, and those in flight, with the calls before it.
func (h *History) Habit(inFlight ...Call) (habit Habit) {
	calls := slices.Clone(h.calls)
	for _, c := range inFlight {
		if kept(c.Signature.Call) && !slices.ContainsFunc(h.calls, c.is) {
			calls = append(calls, c)
		}
	}
	slices.SortStableFunc(calls, compareMade)
	of, members, _ := lanes(calls, h.apart)
	habit.Lanes, habit.Steps = members, make([]int, len(members))
	all := make([][]*Call, len(members))
	for i, lane := range of {
		all[lane] = append(all[lane], &calls[i])
	}
	errs := errorTimes(calls)
	for i, lane := range all {
		for _, part := range cut(lane, errs) {
			odd, next, step := newLane(part).odd()
			habit.Steps[i] = cmp.Or(step, habit.Steps[i])
			habit.Odd = append(habit.Odd, odd...)
			if i == of[len(of)-1] {
				habit.Next = next // of the last part
			}
		}
	}
	habit.findAside(calls, all)
	slices.SortStableFunc(habit.Odd, func(a, b Odd) int { return cmp.Compare(b.Did.Start, a.Did.Start) })
	habit.Odd = habit.Odd[:min(len(habit.Odd), maxOdd)]
	habit.Trail = lastOf(calls, of, len(members), maxTrail)
	findGroups(habit.Trail)
	return habit
}

// wholeSteps is how many steps a lane must go on during a call before it is known not to wait for that call: it may
// wait for a call of the step before.
const wholeSteps = 2

// findAside fills in Aside. A lane with unknown steps, because its calls are all of one kind, must have gone on after
// whole steps of all other lanes with steps. That a lane went on says nothing of its communicators without calls at
// that time: communicators that merely never overlapped share it.
func (h *Habit) findAside(calls []Call, lanes [][]*Call) {
	h.Aside = map[uint32][]uint32{}
	for _, c := range calls {
		end := cmp.Or(c.end, math.MaxInt64)
		after := int64(0) // whole steps of the lanes that have any
		for i, lane := range lanes {
			if h.Steps[i] == 0 || slices.Contains(h.Lanes[i], c.Generation) {
				continue
			}
			first := begun(lane, c.Start)
			if n := first + wholeSteps*h.Steps[i]; n > len(lane) || lane[n-1].made() >= end {
				after = end
			} else {
				after = max(after, lane[n-1].made())
				h.addAside(c.Generation, lane[first:begun(lane, end)], wholeSteps)
			}
		}
		if after == 0 {
			continue
		}
		for i, lane := range lanes {
			if h.Steps[i] == 0 && after < end && !slices.Contains(h.Lanes[i], c.Generation) {
				h.addAside(c.Generation, lane[begun(lane, after):begun(lane, end)], 1)
			}
		}
	}
}

// begun is how many calls of a lane were made before a time.
func begun(lane []*Call, at int64) int {
	n, _ := slices.BinarySearchFunc(lane, at, func(c *Call, at int64) int { return cmp.Compare(c.made(), at) })
	return n
}

// addAside adds the communicators with at least that many of some calls to those that don't wait for another one.
func (h *Habit) addAside(generation uint32, calls []*Call, least int) {
	count := map[uint32]int{}
	for _, c := range calls {
		count[c.Generation]++
		if count[c.Generation] == least && !slices.Contains(h.Aside[generation], c.Generation) {
			h.Aside[generation] = append(h.Aside[generation], c.Generation)
		}
	}
}

// findGroups finds which calls of a trail were made together with the ones before them.
func findGroups(trail []Call) {
	before := map[uint32]*Call{} // by generation
	for i := range trail {
		c := &trail[i]
		if last := before[c.Generation]; last != nil {
			c.Together = last.end == 0 || c.Start < last.end
		}
		before[c.Generation] = c
	}
}

// errorTimes are the times at which calls returned errors, in order.
func errorTimes(calls []Call) (times []int64) {
	for _, c := range calls {
		if c.failed {
			times = append(times, c.end)
		}
	}
	slices.Sort(times)
	return times
}

// cut divides a lane at the times of errors: after an error, a program need not go on in its usual order. The last part
// holds the calls after all errors, if there are any.
func cut(lane []*Call, errs []int64) (parts [][]*Call) {
	for _, at := range errs {
		i := begun(lane, at)
		if i > 0 {
			parts = append(parts, lane[:i])
		}
		lane = lane[i:]
	}
	return append(parts, lane)
}

// lanes divides calls, as the program made them, into lanes of communicators whose calls never overlapped, but for
// those of one group. Calls in flight count only if there are few others, or if several calls begin during one: a first
// overlap may itself be the error, but then it doesn't continue. of has the lane of each call. before are overlaps of
// earlier calls; apart also has those of these calls.
func lanes(calls []Call, before overlaps) (of []int, members [][]uint32, apart overlaps) {
	type comm struct {
		lane   int
		ended  int   // calls
		last   *Call // that ends last of those until now
		beside int   // calls of other communicators during last
	}
	apart = overlaps{}
	maps.Copy(apart, before)
	comms := map[uint32]*comm{}
	var order []uint32 // of the first calls
	for i := range calls {
		c := comms[calls[i].Generation]
		if c == nil {
			c = &comm{}
			comms[calls[i].Generation], order = c, append(order, calls[i].Generation)
		}
		if calls[i].end > 0 {
			c.ended++
		}
	}
	var open []*comm // with calls in flight
	for i := range calls {
		call := &calls[i]
		c := comms[call.Generation]
		open = slices.DeleteFunc(open, func(o *comm) bool { return o.last.end > 0 && o.last.end <= call.made() })
		for _, o := range open {
			if o == c || o.last.group != 0 && o.last.group == call.group {
				continue
			}
			o.beside++
			first := (o.last.end == 0 || call.end == 0) && min(o.ended, c.ended) >= minRepeatsNew
			if !first || o.beside > 1 {
				apart[pairOf(o.last.Generation, call.Generation)] = call.made()
			}
		}
		isOpen := slices.Contains(open, c)
		if !isOpen {
			open = append(open, c)
		}
		if !isOpen || c.last.end > 0 && (call.end == 0 || call.end > c.last.end) {
			c.last, c.beside = call, 0
		}
	}
	for _, g := range order {
		c := comms[g]
		c.lane = slices.IndexFunc(members, func(lane []uint32) bool {
			return !slices.ContainsFunc(lane, func(other uint32) bool {
				_, are := apart[pairOf(g, other)]
				return are
			})
		})
		if c.lane < 0 {
			c.lane = len(members)
			members = append(members, nil)
		}
		members[c.lane] = append(members[c.lane], g)
	}
	of = make([]int, len(calls))
	for i := range calls {
		of[i] = comms[calls[i].Generation].lane
	}
	return of, members, apart
}
