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

// Bounds of Limits: below MinLimit a busy scheduler would be reported, above MaxLimit reports come too late.
const (
	MinLimit = time.Millisecond
	MaxLimit = 24 * time.Hour
)

// Limits say when an operation or an act is slow, and when it stalls. Zero fields take the defaults named in their
// comments.
type Limits struct {
	// Slow is the age at which an activity is slow, or twice its normal duration if that is more. It is at most Floor.
	// 0 means DefaultSlow, or Floor if that is less.
	Slow time.Duration
	// Floor is the age at which an activity stalls, or stallFactor times its normal duration if that is more. 0 means
	// DefaultFloor.
	Floor time.Duration
}

// stallFactor is the multiple of its normal duration at which an activity stalls.
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

// Activity is an *Op or an *Act.
type Activity interface {
	Course() *Progress
	normal(*normals) *normal
}

// Since is when the activity began; for an operation on a device, when the device reached it, if that is known.
func (p *Progress) Since() int64 { return max(p.Start, p.Moved) }

// Course is the Progress of the operation or act.
func (p *Progress) Course() *Progress { return p }

func (o *Op) normal(n *normals) *normal {
	return n.class(o.Signature.Call, tape.SizeClass(o.Signature.Bytes))
}
func (a *Act) normal(n *normals) *normal { return &n.acts[min(a.Kind, numActs-1)] }

// Normal is the normal duration of such activities in this process, in nanoseconds; 0 while too few have ended.
func (p *Process) Normal(a Activity) int64 { return a.normal(&p.normal).duration() }

// Thresholds are the ages at which an activity is slow, and stalls, in nanoseconds.
func (p *Process) Thresholds(a Activity) (slow, stalled int64) {
	normal := min(p.Normal(a), int64(MaxLimit)) // a damaged tape may have any value
	slow = max(int64(p.limits.Slow), 2*normal)
	return slow, max(int64(p.limits.Floor), min(stallFactor*normal, int64(MaxLimit)), slow)
}

// Age is how long something that began at start has lasted at the time now, without the pauses of the process. If it
// began before the last pause, all pauses are subtracted, even those before start.
func (p *Process) Age(start, now int64) int64 {
	age := now - start
	if start < p.resumed {
		age = max(now-p.resumed, age-p.paused)
	}
	return max(age, 0)
}

// Resumed notes that the process ran again at the time now, after it or its machine had been stopped since paused.
func (p *Process) Resumed(paused, now int64) {
	p.resumed = now
	p.paused += max(now-paused, 0)
}

// Paused is how long the process has not run in all.
func (p *Process) Paused() int64 { return p.paused }

// Awake is how long the process has run since its last pause; 0 if it never paused.
func (p *Process) Awake(now int64) int64 {
	if p.resumed == 0 {
		return 0
	}
	return max(now-p.resumed, 1)
}

// Terminated notes when the process was told to end by SIGTERM; 0: never.
func (p *Process) Terminated(at int64) { p.told = at }

// Told is how long ago the process was told to end by SIGTERM; 0 if it wasn't.
func (p *Process) Told(now int64) int64 {
	if p.told == 0 || p.told > now {
		return 0
	}
	return max(now-p.told, 1)
}

// Stalled tells whether an activity takes too long at the time now, or took too long.
func (p *Process) Stalled(a Activity, now int64) bool {
	_, stalled := p.Thresholds(a)
	c := a.Course()
	return c.Stalls > 0 || c.End > 0 && c.End-c.Start >= stalled || c.End == 0 && p.Age(c.Since(), now) >= stalled
}

// Unproven tells whether it is unknown that the last operation of a communicator has completed, although it was
// launched so long before now that it has stalled if it has not completed.
func (p *Process) Unproven(c *Comm, now int64) bool {
	o := c.Unasked()
	if o == nil {
		unproven := c.Slot != nil && c.Slot.Unproven || c.Slot == nil && c.Enqueues() // of a past moment
		if o = &c.Last; !unproven || c.InFlight() != nil || o.End == 0 {
			return false
		}
	}
	_, stalled := p.Thresholds(o)
	return c.Captured == 0 && p.Age(max(o.Start, c.Moved), now) >= stalled
}

// Doubtful lists the live communicators that are Unproven.
func (p *Process) Doubtful(now int64) []*Comm {
	return slices.DeleteFunc(slices.Clone(p.unproven), func(c *Comm) bool { return !p.Unproven(c, now) })
}

// Late lists the live communicators, by generation, that have an activity as old as Limits.Slow, or one that was
// reported as slow or stalled. It costs nothing while no activity can be that old. The list is valid until the next
// call.
func (p *Process) Late(now int64) []*Comm {
	if len(p.late) == 0 && p.Age(p.oldest, now) < int64(p.limits.Slow) {
		return nil
	}
	p.late, p.oldest = p.late[:0], math.MaxInt64
	for _, c := range p.comms {
		late := false
		for activity := range c.Activities() {
			a := activity.Course()
			p.oldest = min(p.oldest, a.Start)
			late = late || a.Slow || a.Stalls > 0 || p.Age(a.Since(), now) >= int64(p.limits.Slow)
		}
		if late {
			p.late = append(p.late, c)
		}
	}
	slices.SortFunc(p.late, byGeneration)
	return p.late
}
