package model

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Defaults of Limits.
const (
	DefaultSlow  = time.Second
	DefaultFloor = 5 * time.Second
)

// Bounds of Limits: below, a busy machine's scheduler is what is reported; above, the report comes too late.
const (
	MinLimit = time.Millisecond
	MaxLimit = 24 * time.Hour
)

// Limits say when an operation or an act is slow, and when it stalls. Zero fields take the defaults that they name.
type Limits struct {
	// Slow is the age at which something is slow. What normally takes longer is slow at twice its normal time. At most
	// Floor. 0 means DefaultSlow, or Floor where that is less.
	Slow time.Duration
	// Floor is the least age at which something stalls: what normally takes long stalls at stallFactor times its normal
	// time. 0 means DefaultFloor.
	Floor time.Duration
}

// stallFactor is how many times its normal duration something takes when it stalls.
const stallFactor = 8

// complete fills in the defaults.
func (l Limits) complete() Limits {
	l.Floor = cmp.Or(l.Floor, DefaultFloor)
	l.Slow = cmp.Or(l.Slow, min(DefaultSlow, l.Floor))
	return l
}

// Valid tells whether the limits are within their bounds, and nothing stalls before it is slow.
func (l Limits) Valid() bool {
	l = l.complete()
	return l.Slow >= MinLimit && l.Slow <= l.Floor && l.Floor <= MaxLimit
}

// thresholds are the ages at which something with that normal duration is slow, and stalls.
func (l *Limits) thresholds(normal int64) (slow, stalled int64) {
	normal = min(normal, int64(MaxLimit)) // a tape may say anything
	slow = max(int64(l.Slow), 2*normal)
	return slow, max(int64(l.Floor), min(stallFactor*normal, int64(MaxLimit)), slow)
}

// Thresholds are the ages at which an operation is slow, and stalls, in nanoseconds.
func (p *Process) Thresholds(o *Op) (slow, stalled int64) {
	return p.limits.thresholds(p.Normal(o.Signature.Call, o.Signature.Bytes))
}

// ActThresholds are those of an act.
func (p *Process) ActThresholds(act tape.Act) (slow, stalled int64) {
	return p.limits.thresholds(p.NormalAct(act))
}

// Age is how long something that began at start has lasted at the time now, as far as the process has run since.
func (p *Process) Age(start, now int64) int64 { return max(now-max(start, p.resumed), 0) }

// Resumed tells that the process did not run until now, because it was stopped or its machine was: what it was in, or
// waited for, begins to count anew.
func (p *Process) Resumed(now int64) { p.resumed = now }

// Awake is for how long the process has run without a pause; 0 if it never paused.
func (p *Process) Awake(now int64) int64 {
	if p.resumed == 0 {
		return 0
	}
	return max(now-p.resumed, 1)
}

// Stalled tells whether an operation that is in flight at the time now, or ended, takes or took too long.
func (p *Process) Stalled(o *Op, now int64) bool {
	if o.Stalls > 0 {
		return true
	}
	_, stalled := p.Thresholds(o)
	if o.End > 0 {
		return o.End-o.Start >= stalled
	}
	return p.Age(o.Start, now) >= stalled
}

// ActStalled tells whether an open act takes too long at the time now.
func (p *Process) ActStalled(a *Act, now int64) bool {
	_, stalled := p.ActThresholds(a.Kind)
	return a.Stalls > 0 || p.Age(a.Start, now) >= stalled
}

// Late lists the live communicators with something that has gone on for at least Limits.Slow, or was told to be slow or
// to stall and goes on, by generation. It costs nothing while nothing can be so old. The list is valid until the next
// call.
func (p *Process) Late(now int64) []*Comm {
	if len(p.late) == 0 && p.Age(p.oldest, now) < int64(p.limits.Slow) {
		return nil
	}
	p.late, p.oldest = p.late[:0], math.MaxInt64
	for _, c := range p.comms {
		late := false
		if o := c.InFlight(); o != nil {
			p.oldest = min(p.oldest, o.Start)
			late = o.Slow || o.Stalls > 0 || p.Age(o.Start, now) >= int64(p.limits.Slow)
		}
		for _, a := range c.Acts {
			p.oldest = min(p.oldest, a.Start)
			late = late || a.Slow || a.Stalls > 0 || p.Age(a.Start, now) >= int64(p.limits.Slow)
		}
		if late {
			p.late = append(p.late, c)
		}
	}
	slices.SortFunc(p.late, byGeneration)
	return p.late
}

// Mark notes what has come to take too long at the time now, and tells whether that is news: also that something which
// did is over. It is for a process that no stall.Watch looks at.
func (p *Process) Mark(now int64) (news bool) {
	stalled := 0
	mark := func(is bool, stalls *int) {
		if is {
			stalled++
			news = news || *stalls == 0
			*stalls = max(*stalls, 1)
		}
	}
	for _, c := range p.Late(now) {
		if o := c.InFlight(); o != nil {
			mark(p.Stalled(o, now), &o.Stalls)
		}
		for _, a := range c.Acts {
			mark(p.ActStalled(a, now), &a.Stalls)
		}
	}
	news = news || stalled < p.stalled
	p.stalled = stalled
	return news
}
